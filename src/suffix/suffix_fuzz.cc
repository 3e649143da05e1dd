// Bytes as operations on a tree: any order of appends, removals and drafts equals the naive model.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "suffix/naive_model.h"

namespace {

using namespace rondo;

constexpr std::int32_t kMaxDraft = 6;
constexpr std::size_t kMaxInput = 96;  // the naive model is slow

void check_draft(const suffix::SuffixTree& tree, const suffix::NaiveModel& model, suffix::Match match,
                 std::span<const Token> context, const suffix::DraftArgs& args) {
  std::vector<Token> tokens(2 * kMaxDraft);
  std::vector<std::int32_t> parents(2 * kMaxDraft);
  std::vector<float> scores(2 * kMaxDraft);
  const auto buffers = [&](std::size_t from) {
    return suffix::DraftBuffers{std::span(tokens).subspan(from, kMaxDraft),
                                std::span(parents).subspan(from, kMaxDraft),
                                std::span(scores).subspan(from, kMaxDraft)};
  };
  const auto got = suffix::draft(tree, match, args, buffers(0));
  const auto want = model.draft(context, args, buffers(kMaxDraft));
  RONDO_CHECK(got == want);
  const auto used = static_cast<std::size_t>(got.num_tokens);
  const auto is_same = [used](const auto& values) {
    return std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(used),
                      values.begin() + kMaxDraft);
  };
  RONDO_CHECK(is_same(tokens) && is_same(parents) && is_same(scores));
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::string siblings = "\x05\x10\x11\x12\x13\x30\x31\x32\x50\x51\xF0\x71\x72\xF3";
  return {siblings, "\x01" + std::string(20, '\x10') + "\xE0" + std::string(20, '\x30'), siblings + siblings};
}

// The first byte is the depth. Then a byte each: bits 5 to 7 a request, bit 4 append, bits 0 to 3 the token;
// without bit 4: remove (bits 0 to 3 zero) or draft with these as arguments.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::int32_t max_depth = 1 + data[0] % 12;
  suffix::SuffixTree tree({.max_depth = max_depth});
  suffix::NaiveModel model(max_depth);
  for (std::size_t i = 1; i < std::min(size, kMaxInput); ++i) {
    const RequestId request(data[i] >> 5);
    const auto low = static_cast<std::int32_t>(data[i] & 15);
    if ((data[i] & 16) != 0) {
      const Token token = low;
      tree.append(request, {&token, 1});
      model.append(request, {&token, 1});
    } else if (low == 0) {
      RONDO_CHECK_EQ(tree.remove(request), model.sequences().contains(request));
      model.remove(request);
    } else {
      const suffix::DraftArgs args{
          .max_tokens = kMaxDraft, .max_match = 1 + low, .min_prob = (low & 1) * 0.25, .top_k = 1 + low % 4};
      const auto own = tree.tokens(request);
      check_draft(tree, model, tree.match(request), own, args);
      check_draft(tree, model, tree.match(own), own, args);
    }
    tree.check_invariants();
  }
  return 0;
}
