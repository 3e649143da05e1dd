#include "rollout/naive_books.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kv/block_pool.h"
#include "kv/prefix.h"

namespace rondo::rollout {

int NaiveBooks::fail_instance(InstanceId id) {
  instances_.erase(id);
  int num_lost = 0;
  for (auto& [request, record] : requests_) {
    if (record.place == KvPlace{KvTier::kInstance, id}) {
      record.place = {};
      record.in_flight = false;
    }
    const bool is_stored = record.place.tier == KvTier::kHost || record.place.tier == KvTier::kDisk;
    if (!is_stored || record.departure.from != id) continue;
    ++num_lost;
    record.place = {};
  }
  for (auto& [group, prompt] : prompts_) {
    prompt.copies.erase(id);
    prompt.computed.erase(id);
    if (!prompt.stored || prompt.departure.from != id) continue;
    ++num_lost;
    prompt.stored = false;
  }
  return num_lost;
}

void NaiveBooks::add_group(const GroupSpec& spec) {
  const int samples = static_cast<int>(spec.samples.size());
  prompts_[spec.id] = {.tokens = spec.prompt_tokens,
                       .unfinished = samples,
                       .num_samples = samples,
                       .copies = {},
                       .computed = {}};
  for (const SampleSpec& sample : spec.samples) requests_[sample.id] = {.group = spec.id, .place = {}};
}

// Whether a sample of the group has its KV there.
bool NaiveBooks::present(GroupId group, InstanceId id) const {
  return std::ranges::any_of(requests_, [&](const auto& item) {
    return item.second.group == group && item.second.place == KvPlace{KvTier::kInstance, id};
  });
}

std::int64_t NaiveBooks::private_blocks(const Record& record) const {
  if (record.in_flight) return record.reserved;
  const std::int32_t prompt = prompts_.at(record.group).tokens;
  return kv::blocks_for(prompt + record.generated - 1) - kv::SharedPrefix(prompt).full_blocks;
}

std::int64_t NaiveBooks::used(InstanceId id) const {
  std::int64_t blocks = 0;
  for (const auto& [request, record] : requests_) {
    if (record.place == KvPlace{KvTier::kInstance, id}) blocks += private_blocks(record);
  }
  for (const auto& [group, prompt] : prompts_) {
    const kv::SharedPrefix prefix(prompt.tokens);
    if (prompt.copies.contains(id)) blocks += present(group, id) ? prefix.full_blocks : prefix.num_blocks();
  }
  return blocks;
}

std::int64_t NaiveBooks::stored(KvTier tier) const {
  std::int64_t blocks = 0;
  for (const auto& [request, record] : requests_) {
    const std::int32_t tokens = prompts_.at(record.group).tokens + record.generated - 1;
    if (record.place.tier == tier) blocks += kv::blocks_for(tokens);
  }
  for (const auto& [group, prompt] : prompts_) {
    if (prompt.stored && tier == KvTier::kHost) blocks += kv::SharedPrefix(prompt.tokens).num_blocks();
  }
  return blocks;
}

void NaiveBooks::check_room() const {
  for (const auto& [id, spec] : instances_) {
    EXPECT_LE(used(id), spec.num_blocks) << "instance " << id.value();
    const auto in_flight = std::ranges::count_if(requests_, [instance = id](const auto& item) {
      return item.second.in_flight && item.second.place.instance == instance;
    });
    EXPECT_LE(in_flight, spec.max_running) << "instance " << id.value();
  }
  EXPECT_LE(stored(KvTier::kHost), limits_.host_blocks);
  EXPECT_LE(stored(KvTier::kDisk), limits_.disk_blocks);
}

void NaiveBooks::evict_prompt(const Eviction& eviction) {
  Prompt& prompt = prompts_.at(eviction.group);
  if (eviction.from.tier == KvTier::kHost) {
    EXPECT_TRUE(prompt.stored && eviction.to.tier == KvTier::kNone);
    prompt.stored = false;
    return;
  }
  EXPECT_FALSE(present(eviction.group, eviction.from.instance)) << "a prompt in use is evicted";
  EXPECT_EQ(prompt.copies.erase(eviction.from.instance), 1U);
  const bool computed = prompt.computed.erase(eviction.from.instance) == 1;
  if (eviction.to.tier == KvTier::kNone) return;
  EXPECT_TRUE(eviction.to.tier == KvTier::kHost && computed && !prompt.stored && prompt.copies.empty());
  EXPECT_LT(std::ssize(prompt.started), prompt.num_samples) << "nobody needs the prompt any more";
  prompt.stored = true;
  prompt.departure = {eviction.from.instance, num_assignments_};
}

void NaiveBooks::evict(const Eviction& eviction) {
  if (eviction.request == RequestId()) return evict_prompt(eviction);
  Record& record = requests_.at(eviction.request);
  EXPECT_TRUE(record.place == eviction.from && !record.in_flight);
  EXPECT_EQ(record.group, eviction.group);
  record.place = eviction.to;
  if (eviction.from.tier == KvTier::kInstance) record.departure = {eviction.from.instance, num_assignments_};
}

void NaiveBooks::check_source(const Assignment& assignment) const {
  const Placement& placement = assignment.placement;
  const Record& record = requests_.at(assignment.request);
  const Prompt& prompt = prompts_.at(record.group);
  const bool here = record.place == KvPlace{KvTier::kInstance, placement.instance};
  std::int32_t cached = prompt.copies.contains(placement.instance) ? prompt.tokens - 1 : 0;
  if (here) cached = prompt.tokens + record.generated - 1;
  if (placement.source == KvSource::kMove) {
    const bool own = placement.from == record.place;
    const bool stored = placement.from.tier == KvTier::kHost && prompt.stored;
    EXPECT_TRUE(own || stored || prompt.computed.contains(placement.from.instance));
    const std::int32_t there = own ? prompt.tokens + record.generated - 1 : prompt.tokens - 1;
    EXPECT_EQ(placement.moved_tokens, there - cached);
    cached = there;
  }
  EXPECT_EQ(placement.cached_tokens, cached);
  EXPECT_GE(placement.recomputed_tokens, 0);
  if (record.generated > 0) {
    EXPECT_EQ(placement.recomputed_tokens, prompt.tokens + record.generated - 1 - cached);
  }
}

void NaiveBooks::assign(const Assignment& assignment) {
  ++num_assignments_;
  for (const Eviction& eviction : assignment.evictions) {
    evict(eviction);
    check_room();
  }
  check_source(assignment);
  Record& record = requests_.at(assignment.request);
  EXPECT_FALSE(record.in_flight);
  EXPECT_EQ(record.generated, assignment.generated);
  const std::int64_t written = prompts_.at(record.group).tokens + record.generated + assignment.max_tokens -
                               1 + limits_.draft_room_tokens;
  const std::int64_t full = kv::SharedPrefix(prompts_.at(record.group).tokens).full_blocks;
  EXPECT_EQ(assignment.reserved_blocks, kv::blocks_for(written) - full);
  record.place = {KvTier::kInstance, assignment.placement.instance};
  record.in_flight = true;
  record.reserved = assignment.reserved_blocks;
  record.assignment = num_assignments_;
  Prompt& prompt = prompts_.at(record.group);
  prompt.copies.insert(assignment.placement.instance);
  prompt.started.insert(assignment.request);
  if (std::ssize(prompt.started) == prompt.num_samples) prompt.stored = false;
  check_room();
}

// Instances carry orders out in turn.
void NaiveBooks::chunk_ended(const Record& ended) {
  const auto arrive = [&ended](Departure& departure) {
    if (departure.from == ended.place.instance && departure.assignment <= ended.assignment) departure = {};
  };
  for (auto& [id, record] : requests_) arrive(record.departure);
  for (auto& [id, prompt] : prompts_) arrive(prompt.departure);
  prompts_.at(ended.group).computed.insert(ended.place.instance);
}

void NaiveBooks::chunk_done(RequestId id, std::int32_t new_tokens) {
  Record& record = requests_.at(id);
  record.in_flight = false;
  record.generated += new_tokens;
  chunk_ended(record);
  check_room();
}

void NaiveBooks::finished(RequestId id, std::int32_t total_tokens) {
  Record& record = requests_.at(id);
  EXPECT_TRUE(record.in_flight && total_tokens > record.generated);
  chunk_ended(record);
  const GroupId group = record.group;
  requests_.erase(id);
  if (--prompts_.at(group).unfinished == 0) prompts_.erase(group);
  check_room();
}

void NaiveBooks::prefetch(const Prefetch& prefetch) {
  for (const Eviction& move : prefetch.moves) {
    const bool is_prompt = move.request == RequestId();
    EXPECT_TRUE(move.from.tier == KvTier::kHost || (move.from.tier == KvTier::kDisk && !is_prompt));
    EXPECT_TRUE(move.to.tier == (move == prefetch.moves.back() ? KvTier::kHost
                                 : is_prompt                   ? KvTier::kNone
                                                               : KvTier::kDisk));
    evict(move);
    check_room();
  }
}

void NaiveBooks::drop_all() {
  for (auto& [id, record] : requests_) record.place = {};
  for (auto& [id, prompt] : prompts_) {
    prompt.copies.clear();
    prompt.computed.clear();
    prompt.stored = false;
  }
}

}  // namespace rondo::rollout
