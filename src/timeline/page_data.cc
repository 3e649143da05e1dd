#include "timeline/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "metrics/json_row.h"
#include "timeline/rows.h"

namespace rondo::timeline {
namespace {

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

// "[a,b,…]" of whatever `text` makes of each item.
template <class Range, class Text>
std::string list(const Range& items, Text text) {
  std::string out = "[";
  for (const auto& item : items) {
    if (out.size() > 1) out += ',';
    out += text(item);
  }
  return out + "]";
}

std::string short_number(double value) {
  return fmt::format("{:.4g}", value);
}

// Every instance, or as many as are drawn, spread evenly.
std::vector<std::int32_t> drawn_instances(std::int32_t count, std::int32_t most) {
  std::vector<std::int32_t> drawn;
  const std::int64_t wanted = std::min(count, most);
  for (std::int64_t i = 0; i < wanted; ++i) drawn.push_back(static_cast<std::int32_t>(i * count / wanted));
  return drawn;
}

struct GroupShare {
  GroupId group;
  std::int64_t end_ns = 0;
  std::int64_t chunks = 0;
};

std::vector<GroupShare> groups_by_end(std::span<const Chunk> chunks) {
  std::unordered_map<GroupId, GroupShare> shares;
  for (const Chunk& chunk : chunks) {
    GroupShare& share = shares[chunk.group];
    share = {chunk.group, std::max(share.end_ns, chunk.end_ns), share.chunks + 1};
  }
  std::vector<GroupShare> sorted;
  sorted.reserve(shares.size());
  for (const auto& [group, share] : shares) sorted.push_back(share);
  std::ranges::sort(sorted, [](const GroupShare& a, const GroupShare& b) {
    return a.end_ns != b.end_ns ? a.end_ns > b.end_ns : a.group < b.group;
  });
  return sorted;
}

// Whole groups with at most `most` chunks together, spread evenly over the order of their ends, so that the
// last one is among them. One group always is.
std::unordered_set<GroupId> drawn_groups(std::span<const GroupShare> groups, std::int64_t most) {
  std::int64_t all = 0;
  for (const GroupShare& share : groups) all += share.chunks;
  const auto stride = static_cast<std::size_t>(std::max<std::int64_t>(1, (all + most - 1) / most));
  std::unordered_set<GroupId> drawn;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < groups.size(); i += stride) {
    used += groups[i].chunks;
    if (used <= most || drawn.empty()) drawn.insert(groups[i].group);
  }
  return drawn;
}

std::unordered_set<RequestId> tail_requests(const Timeline& timeline) {
  const std::size_t count = timeline.finishes.size();
  std::unordered_set<RequestId> tail;
  for (std::size_t i = count - tail_size(count); i < count; ++i) tail.insert(timeline.finishes[i].request);
  return tail;
}

int flags_of(const Chunk& chunk, bool tail) {
  return (chunk.migrated ? 1 : 0) | (chunk.finished ? 2 : 0) | (chunk.origin == KvOrigin::kMoved ? 4 : 0) |
         (chunk.origin == KvOrigin::kRecomputed ? 8 : 0) | (tail ? 16 : 0);
}

// The lists of a timeline's boxes, and its lanes.
std::string boxes_text(const Timeline& timeline, const PageLimits& limits) {
  const auto groups = groups_by_end(timeline.chunks);
  const auto group_drawn = drawn_groups(groups, limits.max_chunks);
  const auto instances = drawn_instances(timeline.num_instances, limits.max_lanes);
  std::vector<std::int32_t> lane_of(static_cast<std::size_t>(timeline.num_instances), -1);
  for (std::size_t lane = 0; lane < instances.size(); ++lane)
    lane_of[static_cast<std::size_t>(instances[lane])] = static_cast<std::int32_t>(lane);
  std::vector<Chunk> drawn;
  for (const Chunk& chunk : timeline.chunks) {
    const bool has_lane = lane_of[static_cast<std::size_t>(chunk.instance.value())] >= 0;
    if (has_lane && group_drawn.contains(chunk.group)) drawn.push_back(chunk);
  }
  const Rows rows = assign_rows(drawn, timeline.num_instances);
  const auto tail = tail_requests(timeline);
  const auto column = [&](auto value) {
    return list(drawn, [&](const Chunk& chunk) { return fmt::format("{}", value(chunk)); });
  };
  const auto micros = [](std::int64_t ns) { return (ns + 500) / 1000; };
  std::string out = fmt::format("\"groups_drawn\":{},\"groups\":{},\"lanes\":", group_drawn.size(),
                                static_cast<std::int64_t>(groups.size()) * timeline.one_group_in);
  out += list(instances, [&](std::int32_t i) {
    return fmt::format("{{\"instance\":{},\"rows\":{}}}", i, rows.count[static_cast<std::size_t>(i)]);
  });
  out += ",\"boxes\":{\"lane\":" +
         column([&](const Chunk& c) { return lane_of[static_cast<std::size_t>(c.instance.value())]; });
  out += ",\"row\":" + list(rows.of_chunk, [](std::int32_t row) { return fmt::format("{}", row); });
  out += ",\"begin\":" + column([&](const Chunk& c) { return micros(c.begin_ns - timeline.begin_ns); });
  out += ",\"end\":" + column([&](const Chunk& c) { return micros(c.end_ns - c.begin_ns); });
  out += ",\"request\":" + column([](const Chunk& c) { return c.request.value(); });
  out += ",\"group\":" + column([](const Chunk& c) { return c.group.value(); });
  out += ",\"from\":" + column([](const Chunk& c) { return c.begin_tokens; });
  out += ",\"to\":" + column([](const Chunk& c) { return c.end_tokens; });
  out += ",\"flags\":" + column([&](const Chunk& c) { return flags_of(c, tail.contains(c.request)); });
  return out + "}";
}

// Means of neighbouring points, so that at most `most` are left; `bin` grows accordingly.
std::vector<double> thinned(const std::vector<double>& points, std::size_t factor) {
  std::vector<double> result;
  for (std::size_t i = 0; i < points.size(); i += factor) {
    const std::size_t end = std::min(points.size(), i + factor);
    double sum = 0;
    for (std::size_t k = i; k < end; ++k) sum += points[k];
    result.push_back(sum / static_cast<double>(end - i));
  }
  return result;
}

struct Curve {
  double bin_s = 0;
  std::vector<std::string> labels;
  std::vector<std::vector<double>> lines;
};

// Mean, least and most of many instances at each point. One without a value at a point counts as 0.
void summarise(Curve& curve) {
  std::size_t points = 0;
  for (const auto& line : curve.lines) points = std::max(points, line.size());
  std::vector<std::vector<double>> summary(3, std::vector<double>(points, 0.0));
  const auto count = static_cast<double>(curve.lines.size());
  for (std::size_t p = 0; p < points; ++p) {
    double least = std::numeric_limits<double>::max();
    for (const auto& line : curve.lines) {
      const double value = p < line.size() ? line[p] : 0.0;
      summary[0][p] += value / count;
      least = std::min(least, value);
      summary[2][p] = std::max(summary[2][p], value);
    }
    summary[1][p] = least;
  }
  curve.lines = std::move(summary);
  curve.labels = {"mean", "least", "most"};
}

std::string curve_text(const std::string& name, const Curve& curve) {
  std::string out = fmt::format("{{\"name\":{},\"bin\":{},\"labels\":", metrics::json_string(name),
                                metrics::json_number(curve.bin_s));
  out += list(curve.labels, [](const std::string& label) { return metrics::json_string(label); });
  out += ",\"lines\":" + list(curve.lines, [](const auto& line) { return list(line, short_number); });
  return out + "}";
}

std::string curves_text(const Timeline& timeline, const PageLimits& limits) {
  std::vector<std::string> names;  // in order of first appearance
  for (const Counter& counter : timeline.counters)
    if (std::ranges::find(names, counter.name) == names.end()) names.push_back(counter.name);
  return list(names, [&](const std::string& name) {
    Curve curve;
    for (const Counter& counter : timeline.counters) {
      if (counter.name != name) continue;
      const std::size_t factor = (counter.means.size() + limits.max_points - 1) / limits.max_points;
      curve.bin_s = seconds(counter.bin_ns) * static_cast<double>(factor);
      curve.labels.push_back(fmt::format("instance {}", counter.instance));
      curve.lines.push_back(thinned(counter.means, factor));
    }
    if (std::ssize(curve.lines) > limits.max_lines) summarise(curve);
    return curve_text(name, curve);
  });
}

// Times at which equal shares of the responses had finished.
std::vector<double> finish_quantiles(const Timeline& timeline, std::size_t most) {
  const std::size_t count = timeline.finishes.size();
  const std::size_t points = std::min(count, most);
  std::vector<double> quantiles;
  for (std::size_t i = 1; i <= points; ++i)
    quantiles.push_back(seconds(timeline.finishes[i * count / points - 1].time_ns - timeline.begin_ns));
  return quantiles;
}

std::string timeline_text(const Timeline& timeline, const PageLimits& limits) {
  std::int64_t tokens = 0;
  for (const Finish& finish : timeline.finishes) tokens += finish.tokens;
  std::string out = fmt::format(
      "{{\"name\":{},\"seconds\":{},\"tail_begin\":{},\"instances\":{},\"requests\":{},",
      metrics::json_string(timeline.name), metrics::json_number(seconds(timeline.end_ns - timeline.begin_ns)),
      metrics::json_number(seconds(tail_begin(timeline) - timeline.begin_ns)), timeline.num_instances,
      timeline.finishes.size());
  out += fmt::format("\"tokens\":{},\"chunks\":{},\"migrations\":{},", tokens, timeline.num_chunks,
                     timeline.num_migrations);
  out += boxes_text(timeline, limits) + ",\"finishes\":";
  out += list(finish_quantiles(timeline, limits.max_points),
              [](double time) { return fmt::format("{:.6g}", time); });
  return out + ",\"curves\":" + curves_text(timeline, limits) + "}";
}

}  // namespace

std::string page_data(std::string_view title, std::span<const Timeline> timelines, const PageLimits& limits) {
  const std::string text =
      "{\"title\":" + metrics::json_string(title) + ",\"timelines\":" +
      list(timelines, [&](const Timeline& timeline) { return timeline_text(timeline, limits); }) + "}";
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace rondo::timeline
