#include "rollout/draft_server.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace rondo::rollout {
namespace {

using batch::DraftDelta;
using batch::DraftFetch;
using batch::DraftFetchReply;
using batch::DraftOutcome;

// Entries of the maps and sets, with their links: at most.
constexpr std::size_t kGroupBytes = 320;
constexpr std::size_t kRequestBytes = 96;
constexpr std::size_t kMinCapacity = 64;  // tokens

std::size_t mix(std::int64_t value) {
  auto bits = static_cast<std::uint64_t>(value) * 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(bits ^ (bits >> 32));
}

std::size_t capacity_for(std::size_t size, std::size_t capacity) {
  return size <= capacity ? capacity : std::max({size, 2 * capacity, kMinCapacity});
}

std::int32_t count_of(const std::vector<Token>& log) {
  return static_cast<std::int32_t>(log.size());
}

// Whether the delta agrees with the log where both have tokens. The delta starts within the log.
bool agrees(const std::vector<Token>& log, const DraftDelta& delta) {
  const auto known = std::span(log).subspan(static_cast<std::size_t>(delta.previous_count));
  const std::size_t overlap = std::min(known.size(), delta.tokens.size());
  return std::ranges::equal(known.first(overlap), delta.tokens.first(overlap));
}

std::int32_t known_count(std::span<const batch::DraftCount> counts, RequestId request) {
  const auto it = std::ranges::lower_bound(counts, request, {}, &batch::DraftCount::request);
  return it != counts.end() && it->request == request ? it->count : 0;
}

}  // namespace

Result<void> DraftServer::Config::validate() const {
  if (num_shards < 1 || num_shards > 1024)
    return fail(Code::kInvalidArgument, "num_shards = {} must lie in 1..1024", num_shards);
  if (max_bytes < 1) return fail(Code::kInvalidArgument, "max_bytes must be at least 1");
  return {};
}

Result<std::unique_ptr<DraftServer>> DraftServer::create(const Config& config, const Clock& clock) {
  RONDO_TRY(config.validate());
  return std::unique_ptr<DraftServer>(new DraftServer(config, clock));
}

DraftServer::DraftServer(const Config& config, const Clock& clock)
    : max_bytes_(config.max_bytes), clock_(clock) {
  for (std::int32_t i = 0; i < config.num_shards; ++i) shards_.push_back(std::make_unique<Shard>());
}

DraftServer::Shard& DraftServer::shard_of(GroupId group) const {
  return *shards_[mix(group.value()) % shards_.size()];
}

DraftServer::Appended DraftServer::update_cst(PolicyVersion version, const DraftDelta& delta) {
  RONDO_CHECK_GE(delta.previous_count, 0);
  Shard& shard = shard_of(delta.group);
  const auto try_append = [&]() -> Appended {
    const std::lock_guard lock(shard.mutex);
    if (shard.version != version) return {DraftOutcome::kOtherVersion, 0};
    return append(shard, delta);
  };
  const Appended appended = try_append();
  if (appended.outcome != DraftOutcome::kNoMemory || erase_expired_everywhere() == 0) return appended;
  return try_append();
}

DraftServer::Appended DraftServer::append(Shard& shard, const DraftDelta& delta) {
  erase_expired(shard);
  const auto it = shard.groups.find(delta.group);
  if (it == shard.groups.end()) return {DraftOutcome::kUnknownGroup, 0};
  return extend(it->second, delta);
}

DraftServer::Appended DraftServer::extend(Group& group, const DraftDelta& delta) {
  const auto it = group.responses.find(delta.request);
  static const std::vector<Token> kNothing;
  const std::vector<Token>& log = it == group.responses.end() ? kNothing : it->second;
  const std::int32_t count = count_of(log);
  if (delta.previous_count > count) return {DraftOutcome::kGap, count};
  if (!agrees(log, delta)) return {DraftOutcome::kContradiction, count};
  const auto known = static_cast<std::size_t>(count - delta.previous_count);
  if (known >= delta.tokens.size()) return {DraftOutcome::kTaken, count};

  const auto fresh = delta.tokens.subspan(known);
  const std::size_t capacity = capacity_for(log.size() + fresh.size(), log.capacity());
  const std::size_t growth =
      (capacity - log.capacity()) * sizeof(Token) + (it == group.responses.end() ? kRequestBytes : 0);
  if (!reserve(growth)) return {DraftOutcome::kNoMemory, count};
  group.bytes += growth;
  std::vector<Token>& grown = group.responses[delta.request];
  grown.reserve(capacity);
  grown.insert(grown.end(), fresh.begin(), fresh.end());
  return {DraftOutcome::kTaken, count_of(grown)};
}

// Takes the bytes out of what is left; false, and nothing taken, if there is too little.
bool DraftServer::reserve(std::size_t bytes) {
  std::size_t used = bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > max_bytes_ - used) return false;
  } while (!bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

bool DraftServer::register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns) {
  Shard& shard = shard_of(group);
  const auto try_register = [&] {
    const std::lock_guard lock(shard.mutex);
    erase_expired(shard);
    if (shard.version != version || !add_group(shard, group)) return false;
    Group& registered = shard.groups.at(group);
    registered.ttl_ns = ttl_ns;
    renew(shard, group, registered);
    return true;
  };
  return try_register() || (erase_expired_everywhere() > 0 && try_register());
}

bool DraftServer::add_group(Shard& shard, GroupId group) {
  if (shard.groups.contains(group)) return true;
  if (!reserve(kGroupBytes)) return false;
  shard.groups[group].bytes = kGroupBytes;
  shard.by_expiry.emplace(0, group);
  return true;
}

// The group lives for its time to live from now on, or longer if it already does.
void DraftServer::renew(Shard& shard, GroupId id, Group& group) {
  const std::int64_t now = clock_.now_ns();
  const bool forever = group.ttl_ns > std::numeric_limits<std::int64_t>::max() - now;
  const std::int64_t expires = forever ? std::numeric_limits<std::int64_t>::max() : now + group.ttl_ns;
  if (expires <= group.expires_ns) return;
  shard.by_expiry.erase({group.expires_ns, id});
  group.expires_ns = expires;
  shard.by_expiry.emplace(expires, id);
}

void DraftServer::erase(Shard& shard, GroupId group) {
  const auto it = shard.groups.find(group);
  if (it == shard.groups.end()) return;
  shard.by_expiry.erase({it->second.expires_ns, group});
  bytes_.fetch_sub(it->second.bytes, std::memory_order_relaxed);
  shard.groups.erase(it);
}

// Returns how many groups went.
std::size_t DraftServer::erase_expired(Shard& shard) {
  if (shard.by_expiry.empty()) return 0;
  const std::int64_t now = clock_.now_ns();
  std::size_t erased = 0;
  for (; !shard.by_expiry.empty() && shard.by_expiry.begin()->first <= now; ++erased)
    erase(shard, shard.by_expiry.begin()->second);
  return erased;
}

std::size_t DraftServer::erase_expired_everywhere() {
  std::size_t erased = 0;
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mutex);
    erased += erase_expired(*shard);
  }
  return erased;
}

void DraftServer::fetch_cst(const DraftFetch& request, DraftFetchReply& reply) {
  reply.version = request.version;
  reply.number = request.number;
  reply.deltas.clear();
  reply.unknown_groups.clear();
  reply.gaps.clear();
  for (const DraftFetch::Group& wanted : request.groups) fetch_group(request, wanted, reply);
}

void DraftServer::fetch_group(const DraftFetch& request, const DraftFetch::Group& wanted,
                              DraftFetchReply& reply) {
  Shard& shard = shard_of(wanted.group);
  const std::lock_guard lock(shard.mutex);
  if (shard.version != request.version) return;
  erase_expired(shard);
  const auto it = shard.groups.find(wanted.group);
  if (it == shard.groups.end()) {
    reply.unknown_groups.push_back(wanted.group);
    return;
  }
  renew(shard, wanted.group, it->second);
  const std::span<const batch::DraftCount> counts = request.counts_of(wanted);
  find_gaps(it->second, wanted.group, counts, reply);
  for (const auto& [id, log] : it->second.responses) {
    const std::int32_t known = known_count(counts, id);
    const std::int64_t room = request.max_tokens - static_cast<std::int64_t>(reply.deltas.num_tokens());
    const std::int64_t size = std::min<std::int64_t>(count_of(log) - known, room);
    if (size <= 0) continue;
    reply.deltas.add(
        {.group = wanted.group,
         .request = id,
         .previous_count = known,
         .tokens = std::span(log).subspan(static_cast<std::size_t>(known), static_cast<std::size_t>(size))});
  }
}

void DraftServer::find_gaps(const Group& group, GroupId id, std::span<const batch::DraftCount> counts,
                            DraftFetchReply& reply) {
  for (const batch::DraftCount& believed : counts) {
    const auto log = group.responses.find(believed.request);
    const std::int32_t count = log == group.responses.end() ? 0 : count_of(log->second);
    if (count >= believed.acked) continue;
    reply.gaps.push_back(
        {.group = id, .request = believed.request, .outcome = DraftOutcome::kGap, .count = count});
  }
}

void DraftServer::remove_group(GroupId group) {
  Shard& shard = shard_of(group);
  const std::lock_guard lock(shard.mutex);
  erase(shard, group);
}

void DraftServer::clear(PolicyVersion version) {
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mutex);
    while (!shard->by_expiry.empty()) erase(*shard, shard->by_expiry.begin()->second);
    shard->version = version;
  }
}

std::vector<Token> DraftServer::tokens(GroupId group, RequestId request) const {
  const Shard& shard = shard_of(group);
  const std::lock_guard lock(shard.mutex);
  const auto it = shard.groups.find(group);
  if (it == shard.groups.end()) return {};
  const auto log = it->second.responses.find(request);
  return log == it->second.responses.end() ? std::vector<Token>() : log->second;
}

std::size_t DraftServer::num_groups() const {
  std::size_t count = 0;
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mutex);
    count += shard->groups.size();
  }
  return count;
}

void DraftServer::check_invariants() const {
  std::size_t bytes = 0;
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mutex);
    RONDO_CHECK_EQ(shard->groups.size(), shard->by_expiry.size());
    for (const auto& [id, group] : shard->groups) {
      RONDO_CHECK(&shard_of(id) == shard.get());
      RONDO_CHECK(shard->by_expiry.contains({group.expires_ns, id}));
      std::size_t group_bytes = kGroupBytes;
      for (const auto& [request, log] : group.responses) {
        RONDO_CHECK(!log.empty());
        group_bytes += kRequestBytes + log.capacity() * sizeof(Token);
      }
      RONDO_CHECK_EQ(group.bytes, group_bytes);
      bytes += group_bytes;
    }
  }
  RONDO_CHECK_EQ(memory_bytes(), bytes);
  RONDO_CHECK_LE(bytes, max_bytes_);
}

}  // namespace rondo::rollout
