#include "engine/drafting.h"

#include <algorithm>
#include <utility>

namespace rondo::engine {

Result<std::unique_ptr<Drafting>> Drafting::create(const Config& config, const rollout::StepCost& cost,
                                                   batch::DraftTransport& transport,
                                                   const rollout::ResponseHistory* history) {
  RONDO_ASSIGN(auto client, batch::DraftClient::create(config.client, transport));
  return std::unique_ptr<Drafting>(new Drafting(config, cost, std::move(client), history));
}

Drafting::Drafting(const Config& config, const rollout::StepCost& cost,
                   std::unique_ptr<batch::DraftClient> client, const rollout::ResponseHistory* history)
    : config_(config), client_(std::move(client)), history_(history), lengths_(config.length, cost) {
  client_->drop_all(PolicyVersion(version_));
}

rollout::DraftClass Drafting::class_of(RequestId request) const {
  const auto it = members_.find(request);
  return it == members_.end() ? rollout::DraftClass{} : it->second.draft_class;
}

void Drafting::begin(RequestId request, GroupId group, const rollout::DraftClass& draft_class) {
  members_[request] = {group, draft_class};
}

void Drafting::propose(std::span<const DraftContext> contexts, batch::Drafts& drafts) {
  asked_.clear();
  queries_.clear();
  rollout::DraftLoad load;
  std::int64_t known = 0;
  for (const DraftContext& context : contexts) {
    load.add(class_of(context.id));
    known += std::ssize(context.prompt) + std::ssize(context.response);
    register_group(context);
    client_->own_tokens(context.group, context.id, context.response);
  }
  load.mean_context = static_cast<std::int32_t>(known / std::max<std::int64_t>(1, std::ssize(contexts)));
  const rollout::DraftLengths lengths = lengths_.plan(load);
  lengths_.commit(load, lengths);
  for (const DraftContext& context : contexts) {
    const rollout::DraftClass draft_class = class_of(context.id);
    const std::int32_t gamma =
        std::min(draft_class.is_probe ? lengths.probe : lengths.other, context.max_tokens);
    ++sequence_steps_;
    wanted_tokens_ += gamma;
    if (gamma < 1) continue;
    queries_.push_back({.slot = context.slot,
                        .group = context.group,
                        .request = context.id,
                        .response = context.response,
                        .args = {.max_tokens = gamma, .min_prob = config_.min_prob, .top_k = lengths.paths}});
    asked_.emplace_back(context.slot, draft_class);
  }
  client_->batch_speculate(queries_, drafts);
}

void Drafting::register_group(const DraftContext& context) {
  if (client_->has_group(context.group)) return;
  std::span<const std::vector<Token>> past;
  if (history_ != nullptr) past = history_->responses(context.prompt);
  client_->register_group(context.group, context.prompt, past);
}

Drafting::Stats Drafting::stats() const {
  const batch::DraftClient::Stats& client = client_->stats();
  return {.sequence_steps = sequence_steps_,
          .wanted_tokens = wanted_tokens_,
          .queries = client.queries,
          .hits = client.hits};
}

void Drafting::observe(std::span<const batch::Planner::Verdict> verdicts) {
  for (const batch::Planner::Verdict& verdict : verdicts) {
    const auto asked =
        std::ranges::find(asked_, verdict.slot, &std::pair<batch::Slot, rollout::DraftClass>::first);
    if (asked == asked_.end()) continue;
    lengths_.observe(asked->second, std::max(verdict.drafted_depth, verdict.accepted), verdict.accepted);
  }
  client_->end_step();
}

void Drafting::end(RequestId request, GroupId group, std::span<const Token> response) {
  client_->own_tokens(group, request, response);
  members_.erase(request);
}

void Drafting::forget_group(GroupId group) {
  client_->forget_group(group);
  std::erase_if(members_, [group](const auto& entry) { return entry.second.group == group; });
}

void Drafting::drop_all() {
  client_->drop_all(PolicyVersion(++version_));
  members_.clear();
}

}  // namespace rondo::engine
