#include "rl/config.h"

#include <algorithm>

#include "base/file.h"
#include "config/dump.h"
#include "config/field_list.h"
#include "config/load.h"

namespace rondo::rl {
namespace {

// Requests and responses of a step lie in memory: beyond this a number is a slip of the finger.
constexpr std::int64_t kMaxResponses = std::int64_t{1} << 24;

Result<void> check_responses(const char* what, std::int64_t prompts, std::int64_t samples) {
  if (samples <= kMaxResponses / prompts) return {};
  return fail(Code::kInvalidArgument, "{} asks for {} x {} responses in a step; at most {} are possible",
              what, prompts, samples, kMaxResponses);
}

}  // namespace

Result<void> Config::validate() const {
  if (model.path.empty())
    return fail(Code::kInvalidArgument,
                "model.path is not set; name a Hugging Face model folder, e.g. "
                "model.path=models/SmolLM2-135M-Instruct");
  if (data.train_batch_size % mini_batch() != 0)
    return fail(Code::kInvalidArgument,
                "actor.mini_batch_size = {} does not divide data.train_batch_size = {}",
                actor.mini_batch_size, data.train_batch_size);
  RONDO_TRY(check_responses("data.train_batch_size x rollout.n", data.train_batch_size, rollout.sampling.n));
  RONDO_TRY(check_responses("rollout.val.n", 1, rollout.val.n));
  if (std::find(rollout.stop.begin(), rollout.stop.end(), "") != rollout.stop.end())
    return fail(
        Code::kInvalidArgument,
        "rollout.stop has an empty string, which ends nothing; leave it out, or set rollout.stop = []");
  if (trainer.run_dir.empty())
    return fail(Code::kInvalidArgument,
                "trainer.run_dir is empty; name the run's folder (\".\" is this one)");
  return {};
}

Result<void> Config::validate_for_training() const {
  const kernels::SamplingParams& params = rollout.sampling.params;
  if (data.train_files.empty())
    return fail(Code::kInvalidArgument, "data.train_files is empty; name at least one jsonl file");
  if (params.temperature <= 0)
    return fail(
        Code::kInvalidArgument,
        "rollout.temperature = {}: greedy decoding is not a policy to train; use a temperature above 0",
        params.temperature);
  if (params.top_p < 1 || params.top_k > 0 || params.min_p > 0)
    return fail(Code::kInvalidArgument,
                "training samples from the whole distribution: set rollout.top_p = 1, rollout.top_k = 0 and "
                "rollout.min_p = 0 (cut-offs belong to rollout.val)");
  return validate_policy();
}

Result<void> Config::validate_policy() const {
  const rollout::PolicyRules& rules = rollout::rules_of(rollout.schedule.policy);
  if (rules.needs_true_lengths)
    return fail(
        Code::kInvalidArgument,
        "rollout.policy: this oracle needs the lengths of responses before they are generated; it is for "
        "`rondo bench rollout`. Use seer, seer_plus, least_attained, fifo or group_round_robin");
  if (!rules.strictly_synchronous)
    return fail(
        Code::kInvalidArgument,
        "rollout.policy = partial drops the responses that take long, and with them what a policy should "
        "learn from or be judged by; it is for `rondo bench rollout`. Use seer or seer_plus");
  return {};
}

Result<Config> read_config(const std::string& file, const std::vector<std::string>& overrides) {
  Config config;
  const config::FieldList fields(config);
  if (!file.empty()) RONDO_TRY(config::load_file(fields, file));
  RONDO_TRY(config::apply_overrides(fields, overrides));
  return config;
}

Result<Config> load_config(const std::string& file, const std::vector<std::string>& overrides) {
  RONDO_ASSIGN(Config config, read_config(file, overrides));
  RONDO_TRY(config::FieldList(config).validate());
  return config;
}

namespace {

// Settings that change speed, memory or what is written, never a result of a step. A learning rate that
// decays depends on the run's length, a constant one does not.
bool changes_no_result(const std::string& key, const Config& config) {
  static const std::vector<std::string> kKeys = {
      "rollout.chunk_tokens",       "rollout.disk_kv_folder",    "rollout.disk_kv_memory",
      "rollout.host_kv_memory",     "rollout.input_log",         "rollout.instance_timeout_s",
      "rollout.instances",          "rollout.length_misses",     "rollout.max_spread",
      "rollout.move_threshold",     "rollout.over_issue",        "rollout.policy",
      "rollout.prefetch_responses", "rollout.starvation_period", "rollout.timeline",
      "train.activation_memory",    "trainer.kernel_target",     "trainer.log_rollouts",
      "trainer.max_ckpt_to_keep",   "trainer.resume_mode",       "trainer.run_dir",
      "trainer.save_freq",          "trainer.test_freq",         "trainer.threads",
      "trainer.val_before_train"};
  if (key == "trainer.total_steps" || key == "trainer.total_epochs")
    return config.actor.optim.schedule.lr_scheduler_type == train::LrScheduler::kConstant;
  return key.starts_with("engine.") || key.starts_with("rollout.spec.") ||
         key.starts_with("rollout.history.") || std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

}  // namespace

std::vector<std::string> changed_results(const Config& before, const Config& after,
                                         const std::vector<std::string>& left_out) {
  Config old_copy = before, new_copy = after;
  const config::FieldList old_fields(old_copy), new_fields(new_copy);
  std::vector<std::string> changes;
  for (const std::string& key : new_fields.keys()) {
    if (std::find(left_out.begin(), left_out.end(), key) != left_out.end()) continue;
    const std::string was = old_fields.find(key)->current(), is = new_fields.find(key)->current();
    if (was != is && !changes_no_result(key, after))
      changes.push_back(fmt::format("{}: {} -> {}", key, was, is));
  }
  return changes;
}

Result<ConfigChanges> changes_since(const std::filesystem::path& file, const Config& config) {
  RONDO_ASSIGN(const std::string text, read_file(file));
  Config before;
  RONDO_ASSIGN(const std::vector<config::LeftOut> entries,
               config::load_known_text(config::FieldList(before), text, file.string()));
  ConfigChanges changes;
  std::vector<std::string> keys;
  for (const config::LeftOut& entry : entries) {
    keys.push_back(entry.key);
    changes.incomparable.push_back(entry.reason);
  }
  changes.results = changed_results(before, config, keys);
  return changes;
}

std::string config_toml(const Config& config) {
  return config::to_toml_of(config);
}
std::string annotated_config_toml(const Config& config) {
  return config::to_annotated_toml_of(config);
}

std::string config_markdown() {
  Config defaults;
  return config::to_markdown(config::FieldList(defaults), "Configuration");
}

}  // namespace rondo::rl
