#include "rl/sync_loop.h"

#include <utility>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "data/rollout_dump.h"
#include "metrics/console.h"
#include "metrics/jsonl_file.h"
#include "rl/checklist.h"
#include "rl/step_metrics.h"
#include "rl/timeline_files.h"

namespace rondo::rl {
namespace {

// Chunks of a step that its timeline keeps: a trace of 10 MB.
constexpr std::int64_t kDrawnChunks = std::int64_t{1} << 15;

}  // namespace

using metrics::Nature;
using metrics::StepRecord;

Result<std::unique_ptr<SyncLoop>> SyncLoop::create(const Config& config, const Clock& clock,
                                                   LoopObserver observer,
                                                   const std::atomic<bool>& interrupted) {
  RONDO_TRY(config.validate_for_training());
  std::unique_ptr<SyncLoop> loop(new SyncLoop(clock, std::move(observer), interrupted));
  RONDO_TRY(loop->load(config));
  RONDO_TRY(loop->start());
  return loop;
}

Result<void> SyncLoop::load(const Config& config) {
  RONDO_ASSIGN(session_, Session::open(config, interrupted_));
  const Session& s = *session_;
  RONDO_ASSIGN(reward_, reward::make_reward(config.reward));
  RONDO_ASSIGN_CTX(train_prompts_,
                   load_prompts(config.data.train_files, config.data, config.model.path, *s.tokenizer,
                                data::GroundTruth::kRequired),
                   "data.train_files");
  train_digest_ = digest_of(train_prompts_);
  if (!config.data.val_files.empty()) {
    RONDO_ASSIGN_CTX(val_prompts_,
                     load_prompts(config.data.val_files, config.data, config.model.path, *s.tokenizer,
                                  data::GroundTruth::kRequired),
                     "data.val_files");
  }
  for (const PromptSet* set : {&train_prompts_, &val_prompts_})
    RONDO_TRY(check_ground_truths(config.reward, *set));
  RONDO_ASSIGN(sampler_,
               data::PromptSampler::create({.batch_size = config.data.train_batch_size,
                                            .shuffle = config.data.shuffle,
                                            .seed = config.trainer.seed},
                                           static_cast<std::int64_t>(train_prompts_.prompts.size())));
  total_steps_ = config.trainer.total_steps > 0 ? config.trainer.total_steps
                                                : sampler_->num_steps(config.trainer.total_epochs);
  if (total_steps_ < 1)
    return fail(Code::kInvalidArgument,
                "{} prompts make no batch of data.train_batch_size = {}; set trainer.total_steps or lower "
                "the batch size",
                train_prompts_.prompts.size(), config.data.train_batch_size);
  return {};
}

Result<void> SyncLoop::start() {
  const Config& config = session_->config;
  RONDO_ASSIGN(trainer_,
               train::Trainer::create(config.train, *session_->model, *session_->weights, session_->context));
  session_->weights.reset();  // the masters are in the trainer now: unmap the files
  RONDO_ASSIGN(update_, PolicyUpdate::create(*session_, *trainer_));
  RONDO_ASSIGN(RunFolder folder, RunFolder::open(config));
  folder_.emplace(std::move(folder));
  if (const auto& checkpoint = folder_->checkpoint()) {
    RONDO_TRY(RunFolder::load(*checkpoint, *trainer_));
    session_->inference->set_length_prior(RunFolder::load_length_prior(*checkpoint));
    completed_ = saved_ = checkpoint->global_step;
    observer_.message(
        fmt::format("resuming after step {} from {}\n", completed_, checkpoint->folder.string()));
    if (completed_ >= total_steps_)
      observer_.message(
          fmt::format("nothing to do: the run has {} steps and was to have {}; raise trainer.total_steps (or "
                      "total_epochs) to go on\n",
                      completed_, total_steps_));
  }
  if (completed_ >= total_steps_) return {};
  if (const auto& checkpoint = folder_->checkpoint())
    RunFolder::warn_of_other_prompts(*checkpoint, train_digest_);
  return folder_->check_space(
      {.bytes = static_cast<std::int64_t>(session_->model->weights().bytes() + trainer_->memory().optimizer),
       .saves = saves_left(),
       .keep = config.trainer.max_ckpt_to_keep});
}

// An interruption saves a step instead of the last, not beside it.
std::int64_t SyncLoop::saves_left() const {
  const std::int64_t frequency = session_->config.trainer.save_freq;
  if (frequency == 0) return 1;
  return total_steps_ / frequency - completed_ / frequency + (total_steps_ % frequency == 0 ? 0 : 1);
}

GenerationProgress SyncLoop::progress(std::string_view phase) const {
  return [this, phase](std::int64_t done, std::int64_t total) { observer_.progress(phase, done, total); };
}

Result<LoopSummary> SyncLoop::run() {
  const Config& config = session_->config;
  RONDO_ASSIGN(const std::vector<CheckItem> reward_check, check_reward(train_prompts_, reward_));
  if (folder_->first_step() == 1) {
    observer_.message(format_checklist(reward_check));
    if (config.trainer.val_before_train && !val_prompts_.prompts.empty()) {
      StepRecord record;
      auto score = evaluate_at(0, record);
      if (!score) return finish(tl::unexpected<Status>(std::move(score).error()));
      summary_.score_before = *score;
      RONDO_TRY(folder_->log_step(0, record));
      observer_.message(fmt::format("held-out score before training: {}\n", metrics::format_number(*score)));
    }
  } else {
    summary_.score_before = logged_score_before();
  }
  eta_.emplace(clock_->now_ns());
  Result<void> outcome;
  for (std::int64_t step = folder_->first_step(); outcome && step <= total_steps_; ++step)
    outcome = run_step(step);
  return finish(std::move(outcome));
}

// What the process that began the run measured. Only told to people, so a log without it is none to stop for.
std::optional<double> SyncLoop::logged_score_before() const {
  const Result<std::string> log = read_file(folder_->metrics());
  if (!log) return std::nullopt;
  const auto rows = metrics::rows_up_to_step(*log, 0);
  if (!rows || rows->empty()) return std::nullopt;
  return logged_mean_score(rows->front(), val_prompts_, session_->config.rollout.val.n);
}

Result<double> SyncLoop::evaluate_at(std::int64_t step, StepRecord& record) {
  const auto scope = timer_.measure("testing");
  // Once a step has changed the weights it is brought to its end: an interruption waits for it.
  static const std::atomic<bool> never{false};
  RONDO_ASSIGN(const EvaluationReport report,
               evaluate(*session_, val_prompts_, reward_, static_cast<std::uint32_t>(step),
                        step == 0 ? *interrupted_ : never, progress("evaluation")));
  report.add_to(record, session_->config.rollout.val.n);
  return report.mean_score();
}

Result<std::vector<ScoredGroup>> SyncLoop::roll_out(std::int64_t step, GenerationStats& stats) {
  const RolloutSection& rollout = session_->config.rollout;
  std::vector<const Prompt*> prompts;
  for (const std::int64_t index : sampler_->batch(step - 1))
    prompts.push_back(&train_prompts_.prompts[static_cast<std::size_t>(index)]);
  const bool drawn = rollout.timeline != TimelineSteps::kNone;
  const SteadyClock steady;
  timeline::Recorder recorder(fmt::format("step {}", step), steady.now_ns(), {.max_chunks = kDrawnChunks});
  std::vector<ScoredGroup> groups;
  {
    const auto scope = timer_.measure("gen");
    RONDO_ASSIGN(groups, generate(*session_,
                                  {.prompts = prompts,
                                   .sampling = &rollout.sampling,
                                   .purpose = RngPurpose::kRollout,
                                   .step = static_cast<std::uint32_t>(step),
                                   .timeline = drawn ? &recorder : nullptr},
                                  reward_, *interrupted_, stats, progress("rollout")));
  }
  if (!drawn) return groups;
  const std::string name =
      rollout.timeline == TimelineSteps::kLast ? std::string("last") : fmt::format("step_{}", step);
  if (const auto written = write_timeline(folder_->timelines(), name, recorder.finish(steady.now_ns()));
      !written)
    log::warn("{}; the run goes on without this picture", written.error().message());
  return groups;
}

Result<void> SyncLoop::run_step(std::int64_t step) {
  const Config& config = session_->config;
  fault::reach("step_begin");
  timer_.reset();
  StepRecord record;
  record.set("training/global_step", step);
  record.set("training/epoch", sampler_->epoch_of(step - 1));
  GenerationStats stats;
  std::vector<ScoredGroup> groups;
  UpdateSummary update;
  std::vector<std::vector<float>> advantages;
  {
    const auto step_scope = timer_.measure("step");
    RONDO_ASSIGN(groups, roll_out(step, stats));
    fault::reach("rollout_done");
    advantages = advantages_of(config.algorithm, groups);
    {
      const auto scope = timer_.measure("update_actor");
      RONDO_ASSIGN(update, update_->run(groups, advantages, step, total_steps_, *interrupted_));
      session_->inference->new_policy_version();
    }
  }
  add_rollout_metrics(record, groups, advantages);
  add_update_metrics(record, update, config.actor.loss);
  add_performance_metrics(record, groups, stats, timer_.seconds("step"), timer_.seconds("gen"));
  if (step == 1) first_step_check(groups, update);
  const bool last = step == total_steps_;
  if (!val_prompts_.prompts.empty() && (last || due(config.trainer.test_freq, step))) {
    RONDO_ASSIGN(const double score, evaluate_at(step, record));
    if (last) summary_.score_after = score;
  }
  timer_.add_to(record);
  record.set("timing_s/reward", stats.reward_seconds, Nature::kMeasured);
  RONDO_TRY(write_rollouts(step, groups, advantages));
  fault::reach("before_log");
  RONDO_TRY(folder_->log_step(step, record));
  completed_ = step;
  fault::reach("after_log");
  eta_->step_done(clock_->now_ns());
  observer_.step_done(step, total_steps_, record, eta_->seconds_left(total_steps_ - step, clock_->now_ns()));
  if (last || due(config.trainer.save_freq, step)) return save(step);
  return {};
}

void SyncLoop::first_step_check(const std::vector<ScoredGroup>& groups, const UpdateSummary& summary) {
  observer_.message(format_checklist(check_first_step(session_->config, groups, summary)));
}

Result<void> SyncLoop::write_rollouts(std::int64_t step, const std::vector<ScoredGroup>& groups,
                                      const std::vector<std::vector<float>>& advantages) {
  if (!session_->config.trainer.log_rollouts) return {};
  RONDO_ASSIGN(data::RolloutWriter writer, data::RolloutWriter::create(folder_->rollouts(), step));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Prompt& prompt = *groups[g].prompt;
    for (std::size_t i = 0; i < groups[g].samples.size(); ++i) {
      const ScoredResponse& sample = groups[g].samples[i];
      RONDO_TRY(
          writer.append({.step = step,
                         .prompt_index = prompt.row.index,
                         .ordinal = static_cast<std::int64_t>(g),
                         .sample = static_cast<std::int64_t>(i),
                         .policy_version = PolicyVersion(step - 1),
                         .data_source = prompt.row.data_source,
                         .prompt_text = prompt.text,
                         .response_text = sample.text,
                         .ground_truth = prompt.row.ground_truth,
                         .score = sample.reward.score,
                         .advantage = advantages[g][i],
                         .finish_reason = std::string(batch::finish_reason_name(sample.response.reason)),
                         .prompt_tokens = *prompt.tokens,
                         .response_tokens = sample.response.tokens,
                         .log_probs = sample.response.logprobs}));
    }
  }
  RONDO_TRY(writer.finish());
  fault::reach("rollouts_written");
  return {};
}

Result<void> SyncLoop::save(std::int64_t step) {
  RONDO_ASSIGN(const Checkpoint checkpoint, folder_->save(step, *session_, *trainer_, train_digest_));
  saved_ = step;
  summary_.model_folder = checkpoint.folder.string();
  return {};
}

// Ends the run. After an interruption the last completed step is saved, if it is not saved yet; other errors
// pass through.
Result<LoopSummary> SyncLoop::finish(Result<void> outcome) {
  summary_.interrupted = !outcome && outcome.error().code() == Code::kCancelled;
  if (!outcome && !summary_.interrupted) return tl::unexpected<Status>(std::move(outcome).error());
  if (summary_.interrupted && completed_ > saved_) RONDO_TRY(save(completed_));
  summary_.last_step = saved_;
  if (summary_.model_folder.empty() && folder_->checkpoint())
    summary_.model_folder = folder_->checkpoint()->folder.string();
  summary_.peak_memory_bytes = peak_memory_bytes();
  return summary_;
}

}  // namespace rondo::rl
