#include "timeline/rows.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

namespace rondo::timeline {
namespace {

// The rows of one instance as time goes on.
class Lane final {
 public:
  std::int32_t take(const Chunk& chunk) {
    while (!busy_.empty() && busy_.top().first <= chunk.begin_ns) {
      free_.insert(busy_.top().second);
      busy_.pop();
    }
    const std::int32_t row = choose(chunk.request);
    free_.erase(row);
    busy_.emplace(chunk.end_ns, row);
    last_row_[chunk.request] = row;
    return row;
  }
  std::int32_t num_rows() const { return num_rows_; }

 private:
  using End = std::pair<std::int64_t, std::int32_t>;  // of the chunk in a row

  std::int32_t choose(RequestId request) {
    const auto last = last_row_.find(request);
    if (last != last_row_.end() && free_.contains(last->second)) return last->second;
    return free_.empty() ? num_rows_++ : *free_.begin();
  }

  std::priority_queue<End, std::vector<End>, std::greater<>> busy_;
  std::set<std::int32_t> free_;
  std::unordered_map<RequestId, std::int32_t> last_row_;
  std::int32_t num_rows_ = 0;
};

}  // namespace

Rows assign_rows(std::span<const Chunk> chunks, std::int32_t num_instances) {
  std::vector<std::size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return chunks[i].begin_ns; });
  std::vector<Lane> lanes(static_cast<std::size_t>(num_instances));
  Rows rows;
  rows.of_chunk.resize(chunks.size());
  for (const std::size_t i : order)
    rows.of_chunk[i] = lanes[static_cast<std::size_t>(chunks[i].instance.value())].take(chunks[i]);
  for (const Lane& lane : lanes) rows.count.push_back(lane.num_rows());
  return rows;
}

}  // namespace rondo::timeline
