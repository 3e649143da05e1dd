// Drafting allocates nothing. A binary of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "batch/draft_client.h"

namespace {

std::int64_t num_allocations = 0;

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
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace rondo::batch {
namespace {

class SilentTransport final : public DraftTransport {
 public:
  void update(const DraftUpdate&) override {}
  void fetch(const DraftFetch&) override {}
  void register_group(PolicyVersion, GroupId, std::int64_t) override {}
  void receive(DraftReplies&) override {}
};

TEST(DraftClientAllocationTest, DraftingAllocatesNothing) {
  constexpr int kNumSequences = 64;
  SilentTransport transport;
  const auto client = *DraftClient::create({}, transport);
  for (int group = 0; group < kNumSequences / 8; ++group)
    client->register_group(GroupId(group), std::vector<Token>{1, 2, 3});
  std::mt19937 random(1);
  std::vector<std::vector<Token>> responses(kNumSequences);
  Drafts drafts;
  // The first rounds let `drafts` reach its size.
  for (int round = 0; round < 200; ++round) {
    std::vector<DraftQuery> queries;
    for (int i = 0; i < kNumSequences; ++i) {
      auto& response = responses[static_cast<std::size_t>(i)];
      response.push_back(static_cast<Token>(random() % 4));
      const GroupId group(i / 8);
      // Every third sequence is one whose tokens the client has not been given.
      if (i % 3 != 0) client->own_tokens(group, RequestId(i), response);
      queries.push_back({.slot = Slot(i),
                         .group = group,
                         .request = RequestId(i),
                         .response = response,
                         .args = {.max_tokens = 8, .min_prob = 1e-6, .top_k = 1 + i % 4}});
    }
    drafts.clear();
    const std::int64_t before = num_allocations;
    client->batch_speculate(queries, drafts);
    if (round >= 100) {
      ASSERT_EQ(num_allocations, before) << "in round " << round;
    }
  }
  EXPECT_GT(client->stats().draft_hit(), 0.9);
}

}  // namespace
}  // namespace rondo::batch
