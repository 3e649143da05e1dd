// Appending may allocate; matching and drafting never do. In a binary of its own: it replaces operator new.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <new>

#include "suffix/draft.h"
#include "suffix/sibling_workload.h"

namespace {

std::size_t num_allocations = 0;

}  // namespace

// Not inlined, or the compiler sees free() meet new.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace rondo::suffix {
namespace {

TEST(DraftAllocationTest, MatchAndDraftDoNotAllocate) {
  const auto sequences = SiblingWorkload{.num_sequences = 8, .num_tokens = 400}.sequences();
  SuffixTree tree(SuffixTree::Config{});
  for (std::size_t i = 0; i < sequences.size(); ++i)
    tree.append(RequestId(static_cast<std::int64_t>(i)), sequences[i]);
  std::array<Token, kMaxDraftTokens> tokens{};
  std::array<std::int32_t, kMaxDraftTokens> parents{};
  std::array<float, kMaxDraftTokens> scores{};
  const DraftBuffers out{tokens, parents, scores};
  const std::size_t before = num_allocations;
  std::int32_t num_drafted = 0;
  for (const std::int32_t top_k : {1, 4}) {
    const DraftArgs args{.max_tokens = kMaxDraftTokens, .min_prob = 0, .top_k = top_k};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      num_drafted += draft(tree, tree.match(RequestId(static_cast<std::int64_t>(i))), args, out).num_tokens;
      for (std::size_t length = 0; length < 400; length += 7)
        num_drafted += draft(tree, tree.match(std::span(sequences[i]).first(length)), args, out).num_tokens;
    }
  }
  EXPECT_EQ(num_allocations, before);
  EXPECT_GT(num_drafted, 1000);
}

}  // namespace
}  // namespace rondo::suffix
