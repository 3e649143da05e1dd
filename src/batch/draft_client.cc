#include "batch/draft_client.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace rondo::batch {
namespace {

// The prompt's name in the tree, and that of past responses, downwards: no request is called so.
constexpr RequestId kPrompt{-2};
constexpr RequestId past_name(std::size_t index) {
  return RequestId(-3 - static_cast<std::int64_t>(index));
}

// Tokens appended between two looks at the memory of all trees.
constexpr std::size_t kPiece = 64;

Result<void> check_positive(const char* name, std::int32_t value) {
  if (value < 1) return fail(Code::kInvalidArgument, "{} = {} must be at least 1", name, value);
  return {};
}

std::int32_t count_of(std::span<const Token> tokens) {
  return static_cast<std::int32_t>(tokens.size());
}

// Whether two sequences are equal in places [begin, end).
bool equal_in(std::span<const Token> a, std::span<const Token> b, std::int32_t begin, std::int32_t end) {
  if (begin >= end) return true;
  const auto first = static_cast<std::size_t>(begin);
  const auto size = static_cast<std::size_t>(end - begin);
  return std::ranges::equal(a.subspan(first, size), b.subspan(first, size));
}

}  // namespace

Result<void> DraftClient::Config::validate() const {
  RONDO_TRY(check_positive("append_batch", append_batch));
  RONDO_TRY(check_positive("fetch_period", fetch_period));
  RONDO_TRY(check_positive("resend_syncs", resend_syncs));
  RONDO_TRY(check_positive("max_fetch_tokens", max_fetch_tokens));
  RONDO_TRY(check_positive("group_ttl_s", group_ttl_s));
  return tree.validate();
}

Result<std::unique_ptr<DraftClient>> DraftClient::create(const Config& config, DraftTransport& transport) {
  RONDO_TRY(config.validate());
  return std::unique_ptr<DraftClient>(new DraftClient(config, transport));
}

DraftClient::DraftClient(const Config& config, DraftTransport& transport)
    : config_(config), transport_(transport) {}

DraftClient::Group* DraftClient::find_group(GroupId group) {
  const auto it = groups_.find(group);
  return it == groups_.end() ? nullptr : &it->second;
}

DraftClient::Response* DraftClient::find_response(Group& group, RequestId request) {
  const auto it = std::ranges::lower_bound(group.responses, request, {}, &Response::request);
  return it != group.responses.end() && it->request == request ? &*it : nullptr;
}

DraftClient::Response& DraftClient::get_or_add(Group& group, RequestId request) {
  const auto it = std::ranges::lower_bound(group.responses, request, {}, &Response::request);
  if (it != group.responses.end() && it->request == request) return *it;
  return *group.responses.insert(it, {.request = request});
}

// Returns how many tokens the tree took.
std::int32_t DraftClient::append(Group& group, RequestId request, std::span<const Token> tokens) {
  std::size_t taken = 0;
  while (taken < tokens.size() && memory_bytes_ < config_.max_bytes) {
    const auto piece = tokens.subspan(taken, std::min(kPiece, tokens.size() - taken));
    const std::size_t before = group.tree.memory_bytes();
    const std::size_t count = group.tree.append(request, piece);
    memory_bytes_ += group.tree.memory_bytes() - before;
    taken += count;
    if (count < piece.size()) break;
  }
  group.full = taken < tokens.size();
  stats_.refused_appends += group.full ? 1 : 0;
  return static_cast<std::int32_t>(taken);
}

void DraftClient::register_group(GroupId group, std::span<const Token> prompt,
                                 std::span<const std::vector<Token>> past) {
  const auto [it, is_new] = groups_.try_emplace(group, config_.tree);
  if (!is_new) return;
  const std::size_t tail = std::min(prompt.size(), static_cast<std::size_t>(config_.tree.max_depth));
  it->second.prompt_tail.assign(prompt.end() - static_cast<std::ptrdiff_t>(tail), prompt.end());
  memory_bytes_ += it->second.tree.memory_bytes();
  append(it->second, kPrompt, prompt);
  for (std::size_t i = 0; i < past.size(); ++i) append(it->second, past_name(i), past[i]);
}

void DraftClient::forget_group(GroupId group) {
  const auto it = groups_.find(group);
  if (it == groups_.end()) return;
  memory_bytes_ -= it->second.tree.memory_bytes();
  groups_.erase(it);
  // There may be room for the others again.
  for (auto& [id, other] : groups_) other.full = false;
}

void DraftClient::drop_all(PolicyVersion version) {
  groups_.clear();
  memory_bytes_ = 0;
  version_ = version;
  fetch_pending_ = false;
}

void DraftClient::own_tokens(GroupId group_id, RequestId request, std::span<const Token> tokens) {
  Group* const group = find_group(group_id);
  if (group == nullptr) return;
  Response& response = get_or_add(*group, request);
  const std::int32_t count = count_of(tokens);
  const bool agrees =
      equal_in(group->tree.tokens(request), tokens, response.own, std::min(response.known, count));
  if (!agrees) start_over(*group, response);
  if (count > response.known)
    response.known += append(*group, request, tokens.subspan(static_cast<std::size_t>(response.known)));
  const std::int32_t own = std::max(response.own, std::min(response.known, count));
  response.grew |= own > response.own;
  response.own = own;
}

// What was fetched of an own response is not what this instance has.
void DraftClient::start_over(Group& group, Response& response) {
  const std::size_t before = group.tree.memory_bytes();
  group.tree.remove(response.request);
  memory_bytes_ += group.tree.memory_bytes() - before;
  response = {.request = response.request, .disputed = true};
  ++stats_.contradictions;
}

void DraftClient::end_step() {
  if (++steps_ >= config_.fetch_period) sync();
}

void DraftClient::sync() {
  steps_ = 0;
  receive();
  register_groups();
  send_updates();
  send_fetch();
  receive();
}

void DraftClient::receive() {
  replies_.clear();
  transport_.receive(replies_);
  for (const DraftUpdateReply& reply : replies_.updates) {
    if (reply.version != version_) continue;
    for (const DraftAck& ack : reply.acks) apply(ack);
  }
  for (const DraftFetchReply& reply : replies_.fetches)
    if (reply.version == version_) apply(reply);
}

void DraftClient::apply(const DraftAck& ack) {
  Group* const group = find_group(ack.group);
  Response* const response = group == nullptr ? nullptr : find_response(*group, ack.request);
  if (response == nullptr) return;
  switch (ack.outcome) {
    case DraftOutcome::kTaken:
      response->acked = std::max(response->acked, ack.count);
      response->sent = std::max(response->sent, response->acked);
      response->silent = 0;
      return;
    case DraftOutcome::kGap:
      response->acked = response->sent = ack.count;
      return;
    case DraftOutcome::kContradiction:
      stats_.contradictions += response->disputed ? 0 : 1;
      response->disputed = true;
      return;
    case DraftOutcome::kUnknownGroup:
      return lose_registration(ack.group);
    case DraftOutcome::kOtherVersion:
    case DraftOutcome::kNoMemory:
      return;  // as if lost: sent again later
  }
}

// The server has nothing of the group.
void DraftClient::lose_registration(GroupId id) {
  Group* const group = find_group(id);
  if (group == nullptr) return;
  group->registered = false;
  for (Response& response : group->responses) response.acked = response.sent = 0;
}

void DraftClient::apply(const DraftFetchReply& reply) {
  stats_.received_bytes += reply.deltas.payload_bytes();
  for (std::size_t i = 0; i < reply.deltas.size(); ++i) apply(reply.deltas[i]);
  for (const GroupId group : reply.unknown_groups) lose_registration(group);
  for (const DraftAck& gap : reply.gaps) apply(gap);
  if (reply.number != fetch_number_) return;
  fetch_pending_ = false;
  if (!reply.deltas.empty())
    first_to_fetch_ = GroupId(reply.deltas[reply.deltas.size() - 1].group.value() + 1);
}

void DraftClient::apply(const DraftDelta& delta) {
  Group* const group = find_group(delta.group);
  if (group == nullptr) return;
  Response* response = find_response(*group, delta.request);
  const std::int32_t known = response == nullptr ? 0 : response->known;
  if (delta.previous_count > known) return;
  if (response == nullptr) response = &get_or_add(*group, delta.request);
  if (response->disputed) return;

  const std::int32_t end = delta.previous_count + count_of(delta.tokens);
  const std::int32_t overlap = std::min(known, end) - delta.previous_count;
  const auto here = group->tree.tokens(delta.request).subspan(static_cast<std::size_t>(delta.previous_count));
  if (!equal_in(here, delta.tokens, 0, overlap)) {
    ++stats_.contradictions;
    return;
  }
  response->acked = std::max(response->acked, end);
  response->sent = std::max(response->sent, end);
  if (end <= known) return;
  const std::int32_t taken =
      append(*group, delta.request, delta.tokens.subspan(static_cast<std::size_t>(overlap)));
  response->known += taken;
  stats_.fetched_tokens += taken;
}

void DraftClient::register_groups() {
  const std::int64_t ttl_ns = std::int64_t{config_.group_ttl_s} * 1'000'000'000;
  for (auto& [id, group] : groups_) {
    // A full group is not fetched, which would have kept it alive.
    if (group.registered && !group.full) continue;
    transport_.register_group(version_, id, ttl_ns);
    group.registered = true;
  }
}

void DraftClient::send_updates() {
  update_.version = version_;
  update_.deltas.clear();
  for (auto& [id, group] : groups_)
    for (Response& response : group.responses) add_update(id, group, response);
  if (update_.deltas.empty()) return;
  stats_.sent_bytes += update_.deltas.payload_bytes();
  transport_.update(update_);
}

void DraftClient::add_update(GroupId id, const Group& group, Response& response) {
  const bool grew = response.grew;
  response.grew = false;
  if (response.disputed) return;
  response.silent = response.sent > response.acked ? response.silent + 1 : 0;
  if (response.silent >= config_.resend_syncs) {
    response.sent = response.acked;
    response.silent = 0;
  }
  const std::int32_t unsent = response.own - response.sent;
  if (unsent <= 0 || (grew && unsent < config_.append_batch)) return;
  update_.deltas.add(
      {.group = id,
       .request = response.request,
       .previous_count = response.sent,
       .tokens = group.tree.tokens(response.request)
                     .subspan(static_cast<std::size_t>(response.sent), static_cast<std::size_t>(unsent))});
  response.sent = response.own;
}

// One fetch at a time, or slow answers would bring the same tokens several times.
void DraftClient::send_fetch() {
  if (fetch_pending_ && ++fetch_silent_ < config_.resend_syncs) return;
  fetch_.clear();
  const auto middle = groups_.lower_bound(first_to_fetch_);
  for (auto it = middle; it != groups_.end(); ++it) add_to_fetch(it->first, it->second);
  for (auto it = groups_.begin(); it != middle; ++it) add_to_fetch(it->first, it->second);
  if (fetch_.groups.empty()) return;
  fetch_.version = version_;
  fetch_.number = ++fetch_number_;
  fetch_.max_tokens = config_.max_fetch_tokens;
  fetch_pending_ = true;
  fetch_silent_ = 0;
  stats_.sent_bytes += fetch_.payload_bytes();
  transport_.fetch(fetch_);
}

void DraftClient::add_to_fetch(GroupId id, const Group& group) {
  if (group.full) return;
  const std::size_t begin = fetch_.counts.size();
  for (const Response& response : group.responses) {
    const std::int32_t count = response.disputed ? std::numeric_limits<std::int32_t>::max() : response.known;
    fetch_.counts.push_back({.request = response.request, .count = count, .acked = response.acked});
  }
  fetch_.groups.push_back({.group = id, .begin = begin, .size = group.responses.size()});
}

void DraftClient::batch_speculate(std::span<const DraftQuery> queries, Drafts& out) {
  std::array<Token, suffix::kMaxDraftTokens> tokens;
  std::array<std::int32_t, suffix::kMaxDraftTokens> parents;
  std::array<float, suffix::kMaxDraftTokens> scores;
  stats_.queries += std::ssize(queries);
  for (const DraftQuery& query : queries) {
    const Group* const group = find_group(query.group);
    if (group == nullptr) continue;
    const suffix::Draft draft =
        suffix::draft(group->tree, match(*group, query), query.args, {tokens, parents, scores});
    if (draft.num_tokens == 0) continue;
    const auto size = static_cast<std::size_t>(draft.num_tokens);
    out.add(query.slot, std::span(tokens).first(size), std::span(parents).first(size));
    ++stats_.hits;
    stats_.drafted_tokens += draft.num_tokens;
  }
}

suffix::Match DraftClient::match(const Group& group, const DraftQuery& query) const {
  const auto depth = static_cast<std::size_t>(config_.tree.max_depth);
  if (query.response.size() >= depth) {
    const bool at_end = group.tree.tokens(query.request).size() == query.response.size();
    return at_end ? group.tree.match(query.request) : group.tree.match(query.response);
  }
  // The context reaches back into the prompt.
  std::array<Token, suffix::kLongestContext> context;
  const std::size_t from_prompt = std::min(depth - query.response.size(), group.prompt_tail.size());
  const auto tail = std::span(group.prompt_tail).last(from_prompt);
  const auto middle = std::ranges::copy(tail, context.begin()).out;
  const auto end = std::ranges::copy(query.response, middle).out;
  return group.tree.match(std::span<const Token>(context.begin(), end));
}

std::span<const Token> DraftClient::tokens(GroupId group, RequestId request) const {
  const auto it = groups_.find(group);
  if (it == groups_.end()) return {};
  return it->second.tree.tokens(request);
}

void DraftClient::check_invariants() const {
  std::size_t bytes = 0;
  for (const auto& [id, group] : groups_) {
    group.tree.check_invariants();
    bytes += group.tree.memory_bytes();
    RONDO_CHECK(std::ranges::is_sorted(group.responses, {}, &Response::request));
    for (const Response& response : group.responses) {
      RONDO_CHECK_EQ(group.tree.tokens(response.request).size(), static_cast<std::size_t>(response.known));
      RONDO_CHECK_LE(response.own, response.known);
      RONDO_CHECK_LE(response.acked, response.sent);
    }
  }
  RONDO_CHECK_EQ(memory_bytes_, bytes);
}

}  // namespace rondo::batch
