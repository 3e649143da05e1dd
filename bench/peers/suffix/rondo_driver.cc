// rondo's suffix tree under the measurement.
#include <array>

#include "measure.h"
#include "suffix/draft.h"

namespace {

using namespace rondo;

class Tree final {
 public:
  void append(int sequence, std::span<const Token> tokens) { tree_.append(RequestId(sequence), tokens); }
  void remove(int sequence) { tree_.remove(RequestId(sequence)); }
  std::size_t reported_bytes() const { return tree_.memory_bytes(); }
  void draft(int sequence, std::span<const Token> /*context*/, bench::Path& path) {
    const suffix::DraftBuffers out{tokens_, parents_, scores_};
    const auto made = suffix::draft(tree_, tree_.match(RequestId(sequence)), args_, out);
    path.assign(tokens_.begin(), tokens_.begin() + made.num_tokens);
  }

 private:
  suffix::SuffixTree tree_{{.max_depth = bench::kDepth}};
  suffix::DraftArgs args_{.max_tokens = bench::kDraftTokens, .min_prob = 0.1};
  std::array<Token, bench::kDraftTokens> tokens_{};
  std::array<std::int32_t, bench::kDraftTokens> parents_{};
  std::array<float, bench::kDraftTokens> scores_{};
};

}  // namespace

int main() {
  bench::Measurement<Tree>().run();
}
