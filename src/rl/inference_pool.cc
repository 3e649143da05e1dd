#include "rl/inference_pool.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/log.h"
#include "rl/move_threshold.h"
#include "rl/step_profile.h"

namespace rondo::rl {
namespace {

// On an engine of its own, for an instance's belongs to its thread.
Result<rollout::StepCost> step_cost(const Config& config, const model::Model& model,
                                    const kernels::Context& context, const std::atomic<bool>* interrupted) {
  RONDO_ASSIGN(const auto engine, engine::Engine::create(config.engine, model, nullptr, context));
  const StepProfileKey key{config, model, context.table->name, context.pool->num_threads()};
  return load_or_measure_step_cost(key, *engine, interrupted);
}

// As configured, else as measured on an engine of its own; 0 where nothing is ever moved.
Result<int> threshold_of_moves(const Config& config, const model::Model& model,
                               const kernels::Context& context) {
  const int configured = config.rollout.schedule.move_threshold;
  if (configured != rollout::Scheduler::Config::kMeasured) return configured;
  if (rollout::rules_of(config.rollout.schedule.policy).dispatch != rollout::Dispatch::kChunks) return 0;
  RONDO_ASSIGN(const auto engine, engine::Engine::create(config.engine, model, nullptr, context));
  RONDO_ASSIGN(const KvCosts costs, measure_kv_costs(*engine, model.spec()));
  const std::int32_t threshold = move_threshold(costs);
  if (config.rollout.instances > 1)
    log::info(
        "rollout.move_threshold = {}, as measured: a token of KV computes in {:.2g} ms, a block of {} moves "
        "in {:.2g} ms",
        threshold, 1e3 * costs.compute_s, kv::kBlockTokens, 1e3 * costs.move_s);
  return threshold;
}

// Budgets that the machine cannot hold are mistakes of a unit, most of them.
Result<void> check_host_memory(const Config& config) {
  const std::int64_t wanted = config.rollout.host_kv_memory.bytes;
  const std::int64_t machine = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  if (machine <= 0 || wanted <= machine) return {};
  return fail(Code::kInvalidArgument,
              "rollout.host_kv_memory = {} is more than this machine has, {}; lower it",
              config::to_string(config.rollout.host_kv_memory), config::to_string({machine}));
}

Result<void> check_disk_space(const Config& config, const std::filesystem::path& folder) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  const std::int64_t wanted = config.rollout.disk_kv_memory.bytes;
  if (error || static_cast<std::uintmax_t>(wanted) <= space.available) return {};
  return fail(Code::kInvalidArgument,
              "rollout.disk_kv_memory = {}, but {} has only {} left; lower it, or name another folder in "
              "rollout.disk_kv_folder",
              config::to_string(config.rollout.disk_kv_memory), folder.parent_path().string(),
              config::to_string({static_cast<std::int64_t>(space.available)}));
}

// Null if nothing may go to disk.
Result<std::unique_ptr<rollout::KvFiles>> make_kv_files(const Config& config) {
  if (config.rollout.disk_kv_memory.bytes == 0) return nullptr;
  std::filesystem::path folder = config.rollout.disk_kv_folder;
  if (folder.empty()) folder = std::filesystem::path(config.trainer.run_dir) / "kv";
  RONDO_ASSIGN(auto files, rollout::KvFiles::create(folder));
  RONDO_TRY(check_disk_space(config, files->folder()));
  return files;
}

}  // namespace

engine::Drafting::Config drafting_config(const SpecSection& spec) {
  engine::Drafting::Config drafting{.length = spec.length, .client = {}, .min_prob = spec.min_prob};
  drafting.client.append_batch = spec.append_batch;
  drafting.client.fetch_period = spec.fetch_period;
  drafting.client.tree.max_depth = spec.max_depth;
  return drafting;
}

Result<std::unique_ptr<InferencePool>> InferencePool::create(const Config& config, const model::Model& model,
                                                             const text::Tokenizer& tokenizer,
                                                             const kernels::Context& context,
                                                             const std::atomic<bool>* interrupted) {
  std::unique_ptr<InferencePool> pool(new InferencePool());
  if (config.rollout.history.enabled) {
    pool->history_ = std::make_unique<rollout::ResponseHistory>(config.rollout.history);
  }
  // What may be refused at once comes before what takes long.
  RONDO_TRY(check_host_memory(config));
  RONDO_ASSIGN(std::unique_ptr<rollout::KvFiles> files, make_kv_files(config));
  RONDO_TRY(pool->make_instances(config, model, tokenizer, context, interrupted));
  const kernels::Context own{.table = context.table,
                             .pool = pool->teams_.empty() ? context.pool : pool->teams_.front().get()};
  RONDO_ASSIGN(const int threshold, threshold_of_moves(config, model, own));
  RONDO_TRY(pool->make_dispatcher(config, threshold, std::move(files)));
  return pool;
}

// One instance has the session's own threads; several share the number out among teams of their own.
Result<void> InferencePool::make_instances(const Config& config, const model::Model& model,
                                           const text::Tokenizer& tokenizer, const kernels::Context& context,
                                           const std::atomic<bool>* interrupted) {
  const int count = config.rollout.instances;
  std::optional<rollout::StepCost> cost;
  for (int i = 0; i < count; ++i) {
    kernels::Context own = context;
    if (count > 1) {
      teams_.push_back(std::make_unique<ThreadPool>(std::max(1, context.pool->num_threads() / count)));
      own.pool = teams_.back().get();
    }
    engine::Instance::Deps deps{.model = &model,
                                .tokenizer = &tokenizer,
                                .context = own,
                                .responses = &responses_,
                                .events = &events_,
                                .clock = &clock_};
    if (config.rollout.spec.enabled && config.rollout.spec.length.max_gamma > 0) {
      if (!cost) {
        RONDO_ASSIGN(cost, step_cost(config, model, own, interrupted));
      }
      RONDO_ASSIGN(deps.drafting, make_drafting(config, *cost));
    }
    RONDO_ASSIGN(auto instance, engine::Instance::create(InstanceId(i), config.engine, std::move(deps)));
    instances_.push_back(std::move(instance));
  }
  return {};
}

Result<std::unique_ptr<engine::Drafting>> InferencePool::make_drafting(const Config& config,
                                                                       const rollout::StepCost& cost) {
  const SpecSection& spec = config.rollout.spec;
  if (draft_server_ == nullptr) {
    RONDO_ASSIGN(draft_server_, rollout::DraftServer::create({}, clock_));
    draft_server_->clear(PolicyVersion(version_));
  }
  draft_transports_.push_back(std::make_unique<rollout::LocalDraftTransport>(*draft_server_));
  return engine::Drafting::create(drafting_config(spec), cost, *draft_transports_.back(), history_.get());
}

void InferencePool::new_policy_version() {
  ++version_;
  if (draft_server_ != nullptr) draft_server_->clear(PolicyVersion(version_));
  dispatcher_->new_policy_version();
  if (history_ != nullptr) history_->new_policy_version();
}

Result<void> InferencePool::make_dispatcher(const Config& config, int move_threshold,
                                            std::unique_ptr<rollout::KvFiles> files) {
  const RolloutSection& rollout = config.rollout;
  const auto block = static_cast<std::int64_t>(engine().kv_bytes()) / engine().num_blocks();
  limits_ = {.host_blocks = rollout.host_kv_memory.bytes / block,
             .disk_blocks = rollout.disk_kv_memory.bytes / block};
  schedule_ = rollout.schedule;
  schedule_.move_threshold = move_threshold;
  RONDO_ASSIGN(auto scheduler, rollout::Scheduler::create(schedule_, limits_));
  auto store = std::make_unique<rollout::KvStore>(std::move(files));
  rollout::Dispatcher::Deps deps{.scheduler = std::move(scheduler),
                                 .instances = {},
                                 .events = &events_,
                                 .store = std::move(store),
                                 .clock = &clock_,
                                 .drafts = draft_server_.get()};
  for (const auto& instance : instances_) deps.instances.push_back(instance.get());
  if (!rollout.input_log.empty()) {
    RONDO_ASSIGN(input_log_, InputLogFile::create(rollout.input_log));
    deps.input_log = [log = input_log_.get()](const rollout::TimedInput& input) { log->add(input); };
  }
  RONDO_ASSIGN(dispatcher_, rollout::Dispatcher::create(rollout.dispatch, std::move(deps)));
  return {};
}

Result<void> InferencePool::run(const Task& task) {
  std::vector<rollout::GroupSpec> groups;
  responses_.clear();
  const auto first = first_id_;
  for (std::size_t i = 0; i < task.requests.size(); ++i) {
    engine::Request request = task.requests[i];
    const std::int32_t limit = request.max_new_tokens;
    if (!task.exact_lengths.empty()) {
      request.max_new_tokens = task.exact_lengths[i];
      request.stop = nullptr;
    }
    RONDO_TRY(engine().check(request));
    const bool new_group = i == 0 || task.requests[i - 1].group != request.group;
    request.id = RequestId(first + static_cast<std::int64_t>(i));
    if (new_group) {
      groups.push_back({.id = GroupId(request.id.value()),
                        .prompt_tokens = static_cast<std::int32_t>(request.prompt->size()),
                        .samples = {},
                        .is_learned = task.is_learned});
      if (history_ != nullptr) groups.back().past_lengths = history_->lengths(*request.prompt);
    }
    request.group = groups.back().id;
    groups.back().samples.push_back({.id = request.id,
                                     .max_new_tokens = limit,
                                     .true_tokens = task.true_lengths.empty() ? 0 : task.true_lengths[i]});
    responses_.add(std::move(request));
  }
  first_id_ += std::ssize(task.requests);
  const auto finished = [&](RequestId id) -> Result<void> {
    engine::Response response = responses_.take(id).value();
    response.id = RequestId(id.value() - first);
    if (history_ != nullptr && task.is_learned) {
      history_->add(*task.requests[static_cast<std::size_t>(response.id.value())].prompt, response.tokens);
    }
    return task.finished(std::move(response));
  };
  Result<void> outcome = dispatcher_->run({.groups = groups,
                                           .goal_groups = task.goal_groups,
                                           .finished = finished,
                                           .interrupted = task.interrupted,
                                           .timeline = task.timeline});
  kv::ImageBuffer::free_spares();  // training comes next, and needs the memory
  if (input_log_ != nullptr) input_log_->flush();
  return outcome;
}

batch::Planner::Stats InferencePool::engine_stats() const {
  batch::Planner::Stats sum;
  for (const auto& instance : instances_) {
    const batch::Planner::Stats stats = instance->stats();
    sum.steps += stats.steps;
    sum.computed_tokens += stats.computed_tokens;
    sum.recomputed_tokens += stats.recomputed_tokens;
    sum.shared_prompt_tokens += stats.shared_prompt_tokens;
    sum.restored_tokens += stats.restored_tokens;
    sum.preemptions += stats.preemptions;
    sum.evicted_prefixes += stats.evicted_prefixes;
    sum.evicted_parked += stats.evicted_parked;
    sum.drafted_tokens += stats.drafted_tokens;
    sum.accepted_tokens += stats.accepted_tokens;
  }
  return sum;
}

engine::Drafting::Stats InferencePool::draft_stats() const {
  engine::Drafting::Stats sum;
  for (const auto& instance : instances_) {
    const engine::Drafting::Stats stats = instance->draft_stats();
    sum.sequence_steps += stats.sequence_steps;
    sum.wanted_tokens += stats.wanted_tokens;
    sum.queries += stats.queries;
    sum.hits += stats.hits;
  }
  return sum;
}

}  // namespace rondo::rl
