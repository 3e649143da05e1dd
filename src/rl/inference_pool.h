// InferencePool: the inference instances of a session and the dispatcher that feeds them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/instance.h"
#include "engine/response_store.h"
#include "kernels/ops.h"
#include "model/weights.h"
#include "rl/config.h"
#include "rl/input_log_file.h"
#include "rollout/dispatcher.h"
#include "rollout/draft_server.h"
#include "rollout/event_queue.h"
#include "rollout/local_draft_transport.h"
#include "rollout/response_history.h"
#include "text/tokenizer.h"
#include "timeline/recorder.h"

namespace rondo::rl {

/// How an instance drafts under these settings.
engine::Drafting::Config drafting_config(const SpecSection& spec);

/// Generates responses on rollout.instances engines, which share one packed copy of the weights.
///
/// Borrows model, tokenizer and context. What it generates depends on the requests and the weights alone. One
/// owner thread; while run() does not, the context's thread team and the weights are the owner's.
class InferencePool final {
 public:
  /// kCancelled if `interrupted` (may be null) becomes true while the time of steps is measured.
  static Result<std::unique_ptr<InferencePool>> create(const Config& config, const model::Model& model,
                                                       const text::Tokenizer& tokenizer,
                                                       const kernels::Context& context,
                                                       const std::atomic<bool>* interrupted = nullptr);

  struct Task {
    std::span<const engine::Request> requests;         // ids 0, 1, …; those of a group stand together
    std::span<const std::int32_t> true_lengths = {};   // by id, for the oracle policies
    std::span<const std::int32_t> exact_lengths = {};  // by id: they end there and nowhere else
    std::int64_t goal_groups = 0;                      // for `partial`; 0: all
    bool is_learned = true;                            // what it generates is like what comes next
    const std::atomic<bool>* interrupted = nullptr;
    timeline::Recorder* timeline = nullptr;                  // gets what runs when
    std::function<Result<void>(engine::Response)> finished;  // as each response ends
  };
  /// Generates all responses. kCancelled when interrupted.
  Result<void> run(const Task& task);

  /// New weights.
  void new_policy_version();
  /// What the finished policy versions say of lengths, to resume with. Changes speed alone.
  const rollout::LengthPrior& length_prior() const { return dispatcher_->scheduler().prior(); }
  void set_length_prior(const rollout::LengthPrior& prior) { dispatcher_->set_length_prior(prior); }
  const rollout::Dispatcher& dispatcher() const { return *dispatcher_; }
  /// Sums over the instances since they were made.
  batch::Planner::Stats engine_stats() const;
  engine::Drafting::Stats draft_stats() const;
  /// Of one instance, for measurements while nothing runs.
  engine::Engine& engine() { return instances_.front()->engine(); }
  /// What its scheduler was made with, measured values included, for a replay of its inputs.
  const rollout::Scheduler::Config& scheduler_config() const { return schedule_; }
  const rollout::Scheduler::Limits& scheduler_limits() const { return limits_; }
  int num_instances() const { return static_cast<int>(instances_.size()); }

 private:
  InferencePool() = default;
  Result<void> make_instances(const Config& config, const model::Model& model,
                              const text::Tokenizer& tokenizer, const kernels::Context& context,
                              const std::atomic<bool>* interrupted);
  Result<std::unique_ptr<engine::Drafting>> make_drafting(const Config& config,
                                                          const rollout::StepCost& cost);
  Result<void> make_dispatcher(const Config& config, int move_threshold,
                               std::unique_ptr<rollout::KvFiles> files);

  SteadyClock clock_;
  std::int64_t version_ = 0;  // of the policy, as the draft server counts
  std::int64_t first_id_ =
      0;  // ids are never used twice, so that a late event of an earlier run fits no request
  engine::ResponseStore responses_;
  rollout::EventQueue events_;
  std::unique_ptr<rollout::ResponseHistory> history_;   // null: not wanted
  std::unique_ptr<rollout::DraftServer> draft_server_;  // null: no speculation
  std::vector<std::unique_ptr<rollout::LocalDraftTransport>> draft_transports_;
  std::vector<std::unique_ptr<ThreadPool>> teams_;
  std::vector<std::unique_ptr<engine::Instance>> instances_;
  rollout::Scheduler::Config schedule_;
  rollout::Scheduler::Limits limits_;
  std::unique_ptr<InputLogFile> input_log_;  // null: none
  std::unique_ptr<rollout::Dispatcher> dispatcher_;
};

}  // namespace rondo::rl
