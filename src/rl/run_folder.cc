#include "rl/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>
#include <vector>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "data/rollout_dump.h"
#include "hf/publish.h"
#include "model/load.h"

namespace rondo::rl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPointer = "latest";
constexpr std::string_view kCheckpointPrefix = "global_step_";
constexpr const char* kStateFile = "state.safetensors";
constexpr const char* kPriorFile = "length_prior.json";
constexpr const char* kPromptsFile = "train_prompts.json";

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kCheckpointPrefix)) return std::nullopt;
  const char* begin = name.data() + kCheckpointPrefix.size();
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

Result<std::optional<Checkpoint>> newest_checkpoint(const fs::path& checkpoints) {
  RONDO_ASSIGN(const std::optional<fs::path> folder, hf::read_pointer(checkpoints, kPointer));
  if (!folder) return std::nullopt;
  const std::optional<std::int64_t> step = step_of(folder->filename().string());
  if (!step)
    return fail(Code::kDataLoss, "{} names '{}', which is no checkpoint", (checkpoints / kPointer).string(),
                folder->filename().string());
  return Checkpoint{*folder, *step};
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

void remove_checkpoint(const fs::path& checkpoints, std::int64_t step) {
  const fs::path folder = checkpoints / fmt::format("{}{}", kCheckpointPrefix, step);
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) log::warn("cannot remove the checkpoint {}: {}", folder.string(), error.message());
}

// Removes all but the `keep` newest, also those whose removal was cut short; 0 keeps all.
void prune(const fs::path& checkpoints, int keep) {
  if (keep == 0) return;
  const std::vector<std::int64_t> steps = checkpoint_steps(checkpoints);
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i)
    remove_checkpoint(checkpoints, steps[i]);
}

// Removes what is newer than the checkpoint of `last_step`: it was never pointed to and will be done again. A
// killed process leaves at most one such folder before the first pointer (last_step 0).
Result<void> clear_unfinished(const fs::path& checkpoints, std::int64_t last_step) {
  const std::vector<std::int64_t> steps = checkpoint_steps(checkpoints);
  if (last_step == 0 && steps.size() > 1)
    return fail(
        Code::kDataLoss,
        "{} is missing; to go on, write the newest whole checkpoint's name into it, e.g. {}{}, or choose "
        "another trainer.run_dir",
        (checkpoints / kPointer).string(), kCheckpointPrefix, steps.front());
  RONDO_TRY(hf::remove_temporaries(checkpoints));
  for (const std::int64_t step : steps)
    if (step > last_step) remove_checkpoint(checkpoints, step);
  return {};
}

Result<void> make_folders(const fs::path& root) {
  std::error_code error;
  for (const char* name : {"rollouts", "checkpoints"}) {
    fs::create_directories(root / name, error);
    if (error)
      return fail(Code::kIo, "cannot create {}: {}; choose another trainer.run_dir", (root / name).string(),
                  error.message());
  }
  return {};
}

// How to go on without `checkpoint`, which is damaged.
std::string way_on_without(const Checkpoint& checkpoint) {
  const fs::path checkpoints = checkpoint.folder.parent_path();
  for (const std::int64_t step : checkpoint_steps(checkpoints))
    if (step < checkpoint.global_step)
      return fmt::format("to go on from the checkpoint before, write its name, {}{}, into {}",
                         kCheckpointPrefix, step, (checkpoints / kPointer).string());
  return fmt::format("{} has no older checkpoint to go on from; begin again with another trainer.run_dir",
                     checkpoints.string());
}

// A run may go on with other settings, but not without being told.
void warn_of_changes(const fs::path& old_file, const Config& config) {
  const auto changes = changes_since(old_file, config);
  if (!changes) {
    log::warn("cannot compare with the run's earlier settings: {}", changes.error().message());
    return;
  }
  for (const std::string& reason : changes->incomparable)
    log::warn("cannot compare with one of the run's earlier settings: {}", reason);
  for (const std::string& change : changes->results)
    log::warn("resuming with another setting than before, which changes results from here on: {}", change);
}

}  // namespace

Result<RunFolder> RunFolder::open(const Config& config) {
  const fs::path root = config.trainer.run_dir;
  const bool used = fs::exists(root / "metrics.jsonl") || fs::exists(root / "checkpoints" / kPointer);
  if (used && config.trainer.resume_mode == ResumeMode::kDisable)
    return fail(Code::kInvalidArgument,
                "{} holds a run already; choose another trainer.run_dir, or set trainer.resume_mode=auto to "
                "go on with it",
                root.string());
  RONDO_TRY(make_folders(root));
  Result<FileLock> lock = FileLock::take(root / ".lock");
  if (!lock) return fail(lock.error().code(), "{}; choose another trainer.run_dir", lock.error().message());
  RONDO_ASSIGN(std::optional<Checkpoint> checkpoint, newest_checkpoint(root / "checkpoints"));
  const std::int64_t last_step = checkpoint ? checkpoint->global_step : 0;
  RONDO_TRY(clear_unfinished(root / "checkpoints", last_step));
  prune(root / "checkpoints", config.trainer.max_ckpt_to_keep);
  RONDO_ASSIGN(metrics::MetricsLog log,
               metrics::MetricsLog::open(root / "metrics.jsonl", checkpoint ? last_step : -1));
  RONDO_TRY(data::remove_rollouts_from(root / "rollouts", last_step + 1));
  if (checkpoint) warn_of_changes(root / "config.toml", config);
  RONDO_TRY(replace_file(root / "config.toml", config_toml(config)));
  return RunFolder(root, std::move(*lock), std::move(log), std::move(checkpoint));
}

Result<void> RunFolder::log_step(std::int64_t step, const metrics::StepRecord& record) {
  return log_.append(step, record);
}

Result<void> RunFolder::check_space(const CheckpointPlan& plan) const {
  std::error_code error;
  const auto space = fs::space(root_, error);
  const auto present = static_cast<std::int64_t>(checkpoint_steps(checkpoints()).size());
  const bool keeps_all = plan.keep == 0 || present + plan.saves <= plan.keep;
  // The next is written before the oldest goes.
  const std::int64_t more = keeps_all ? plan.saves : plan.keep + 1 - present;
  const auto available = static_cast<std::int64_t>(space.available);
  if (error || more <= available / plan.bytes) return {};
  const std::string several = fmt::format(
      " and up to {}{} will be there at a time (trainer.max_ckpt_to_keep = {}{})", more,
      present > 0 ? " more" : "", plan.keep, keeps_all ? " keeps all" : ", and the one being written");
  return fail(Code::kResourceExhausted,
              "a checkpoint takes {}{}, but {} has only {} left; free some space{} or choose another "
              "trainer.run_dir",
              config::to_string({plan.bytes}), more > 1 ? several : "", root_.string(),
              config::to_string({available}),
              more > 1 ? ", keep fewer (trainer.max_ckpt_to_keep, trainer.save_freq)" : "");
}

Result<Checkpoint> RunFolder::save(std::int64_t step, const Session& session, const train::Trainer& trainer,
                                   const PromptDigest& prompts) {
  RONDO_TRY(log_.sync());
  const std::string name = fmt::format("{}{}", kCheckpointPrefix, step);
  const auto fill = [&](const fs::path& folder) -> Result<void> {
    RONDO_TRY(model::write_model(*session.model, session.model_config, folder, session.config.model.path));
    fault::reach("checkpoint_model_written");
    std::error_code error;
    fs::create_directory(folder / "trainer", error);
    if (error) return fail(Code::kIo, "cannot create {}: {}", (folder / "trainer").string(), error.message());
    RONDO_TRY(trainer.save_state(folder / "trainer" / kStateFile));
    fault::reach("checkpoint_state_written");
    RONDO_TRY(write_file_durable(folder / "trainer" / kPriorFile,
                                 rollout::length_prior_json(session.inference->length_prior())));
    return write_file_durable(folder / "trainer" / kPromptsFile, prompt_digest_json(prompts));
  };
  const auto progress = [](std::string_view stage) { fault::reach(fmt::format("checkpoint_{}", stage)); };
  RONDO_ASSIGN_CTX(const fs::path folder, hf::publish_folder(checkpoints(), name, kPointer, fill, progress),
                   "saving a checkpoint");
  checkpoint_ = Checkpoint{folder, step};
  fault::reach("checkpoint_before_prune");
  prune(checkpoints(), session.config.trainer.max_ckpt_to_keep);
  return *checkpoint_;
}

Result<void> RunFolder::load(const Checkpoint& checkpoint, train::Trainer& trainer) {
  auto loaded = trainer.load_state(checkpoint.folder / "trainer" / kStateFile);
  if (loaded) return loaded;
  const Code code = loaded.error().code();
  const bool damaged = code == Code::kDataLoss || code == Code::kNotFound;
  return fail(code, "resuming from {}: {}{}", checkpoint.folder.string(), loaded.error().message(),
              damaged ? "; " + way_on_without(checkpoint) : "");
}

rollout::LengthPrior RunFolder::load_length_prior(const Checkpoint& checkpoint) {
  const fs::path file = checkpoint.folder / "trainer" / kPriorFile;
  if (!fs::exists(file)) return {};
  const Result<std::string> text = read_file(file);
  const Result<rollout::LengthPrior> prior =
      text ? rollout::parse_length_prior(*text) : tl::unexpected<Status>(text.error());
  if (prior) return *prior;
  log::warn("{}: {}; response lengths are learned anew", file.string(), prior.error().message());
  return {};
}

void RunFolder::warn_of_other_prompts(const Checkpoint& checkpoint, const PromptDigest& prompts) {
  const fs::path file = checkpoint.folder / "trainer" / kPromptsFile;
  if (!fs::exists(file)) return;
  const Result<std::string> text = read_file(file);
  const Result<PromptDigest> before =
      text ? parse_prompt_digest(*text) : tl::unexpected<Status>(text.error());
  if (!before) {
    log::warn("cannot compare with the prompts that the run was trained on: {}: {}", file.string(),
              before.error().message());
  } else if (*before != prompts) {
    log::warn(
        "resuming with other training prompts than before, which changes results from here on: {}; the run "
        "goes on with the new ones at step {}, and will not equal one that was never interrupted",
        difference(*before, prompts), checkpoint.global_step + 1);
  }
}

}  // namespace rondo::rl
