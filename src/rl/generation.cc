#include "rl/generation.h"

#include <utility>

#include "base/clock.h"
#include "base/fault_point.h"

namespace rondo::rl {
namespace {

class Generation final {
 public:
  Generation(Session& session, const GenerationTask& task, const reward::RewardFunction& reward,
             GenerationStats& stats)
      : session_(session), task_(task), reward_(reward), stats_(stats), n_(task.sampling->n) {
    for (const Prompt* prompt : task.prompts) groups_.push_back({prompt, {}});
    for (ScoredGroup& group : groups_) group.samples.resize(static_cast<std::size_t>(n_));
  }

  std::vector<engine::Request> requests() const {
    std::vector<engine::Request> all;
    for (std::size_t ordinal = 0; ordinal < groups_.size(); ++ordinal)
      for (int sample = 0; sample < n_; ++sample) all.push_back(request(ordinal, sample));
    return all;
  }

  Result<void> accept(engine::Response response) {
    const std::int64_t id = response.id.value();
    ScoredGroup& group = groups_[static_cast<std::size_t>(id / n_)];
    ScoredResponse& scored = group.samples[static_cast<std::size_t>(id % n_)];
    std::span<const Token> tokens = response.tokens;
    if (response.reason == batch::FinishReason::kStopToken) tokens = tokens.first(tokens.size() - 1);
    scored.text = session_.tokenizer->decode(tokens, true);
    scored.response = std::move(response);
    ++done_;
    fault::reach("rollout_response");
    return score(*group.prompt, scored);
  }

  std::int64_t done() const { return done_; }
  std::int64_t total() const { return static_cast<std::int64_t>(groups_.size()) * n_; }
  std::vector<ScoredGroup> take() { return std::move(groups_); }

 private:
  engine::Request request(std::size_t ordinal, int sample) const {
    engine::Request request;
    request.id = RequestId(static_cast<std::int64_t>(ordinal) * n_ + sample);
    request.group = GroupId(static_cast<std::int64_t>(ordinal));
    request.prompt = groups_[ordinal].prompt->tokens;
    request.max_new_tokens = session_.config.data.max_response_length;
    request.sampling = task_.sampling->params;
    request.rng = Rng(session_.config.trainer.seed, task_.purpose);
    request.counter = {.step = task_.step,
                       .ordinal = static_cast<std::uint32_t>(ordinal),
                       .sample = static_cast<std::uint32_t>(sample)};
    request.stop = session_.stop;
    return request;
  }

  Result<void> score(const Prompt& prompt, ScoredResponse& scored) {
    if (!reward_) return {};
    const double begin = clock_.now_s();
    RONDO_ASSIGN_CTX(scored.reward,
                     reward_({.data_source = prompt.row.data_source,
                              .response = scored.text,
                              .ground_truth = prompt.row.ground_truth,
                              .extra_info_json = prompt.row.extra_info_json}),
                     "scoring a response to " + prompt.row.name());
    stats_.reward_seconds += clock_.now_s() - begin;
    return {};
  }

  Session& session_;
  const GenerationTask& task_;
  const reward::RewardFunction& reward_;
  GenerationStats& stats_;
  SteadyClock clock_;
  std::int64_t n_;
  std::int64_t done_ = 0;
  std::vector<ScoredGroup> groups_;
};

engine::Drafting::Stats difference(const engine::Drafting::Stats& after,
                                   const engine::Drafting::Stats& before) {
  return {.sequence_steps = after.sequence_steps - before.sequence_steps,
          .wanted_tokens = after.wanted_tokens - before.wanted_tokens,
          .queries = after.queries - before.queries,
          .hits = after.hits - before.hits};
}

}  // namespace

Result<std::vector<ScoredGroup>> generate(Session& session, const GenerationTask& task,
                                          const reward::RewardFunction& reward,
                                          const std::atomic<bool>& interrupted, GenerationStats& stats,
                                          const GenerationProgress& progress) {
  InferencePool& inference = *session.inference;
  const batch::Planner::Stats before = inference.engine_stats();
  const engine::Drafting::Stats drafts_before = inference.draft_stats();
  Generation generation(session, task, reward, stats);
  const auto finished = [&](engine::Response response) -> Result<void> {
    RONDO_TRY(generation.accept(std::move(response)));
    if (progress) progress(generation.done(), generation.total());
    return {};
  };
  const std::vector<engine::Request> requests = generation.requests();
  RONDO_TRY(inference.run({.requests = requests,
                           .true_lengths = task.true_lengths,
                           .exact_lengths = task.exact_lengths,
                           .goal_groups = task.goal_groups,
                           .is_learned = task.purpose == RngPurpose::kRollout,
                           .interrupted = &interrupted,
                           .timeline = task.timeline,
                           .finished = finished}));
  const batch::Planner::Stats after = inference.engine_stats();
  stats.preemptions = after.preemptions - before.preemptions;
  stats.recomputed_tokens = after.recomputed_tokens - before.recomputed_tokens;
  stats.drafted_tokens = after.drafted_tokens - before.drafted_tokens;
  stats.accepted_tokens = after.accepted_tokens - before.accepted_tokens;
  stats.drafting = difference(inference.draft_stats(), drafts_before);
  stats.dispatch = inference.dispatcher().stats();
  return generation.take();
}

}  // namespace rondo::rl
