// arctic-inference's suffix tree under the measurement, through its C++ class.
#include "measure.h"
#include "suffix_tree.h"

namespace {

using namespace rondo;

class Tree final {
 public:
  void append(int sequence, std::span<const Token> tokens) {
    if (tokens.size() == 1) {
      tree_.append(sequence, tokens[0]);
    } else {
      tree_.extend(sequence, tokens);
    }
  }
  void remove(int sequence) { tree_.remove(sequence); }
  std::size_t reported_bytes() const { return tree_.estimate_memory(); }
  // Its bound on the draft's length by the match's is lifted: rondo has none.
  void draft(int /*sequence*/, std::span<const Token> context, bench::Path& path) {
    path = tree_.speculate(context, bench::kDraftTokens, 0.0F, bench::kDraftTokens, 0.1F, false).token_ids;
  }

 private:
  SuffixTree tree_{bench::kDepth};
};

}  // namespace

int main() {
  bench::Measurement<Tree>().run();
}
