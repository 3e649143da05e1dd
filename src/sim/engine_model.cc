#include "sim/engine_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file.h"

namespace rondo::sim {
namespace {

constexpr double kActivationBytes = 2.0;

// Experts of a layer that at least one of `rows` tokens is sent to, if they are drawn evenly.
double touched_experts(const ModelShape& model, double rows) {
  const double missed = 1.0 - static_cast<double>(model.experts_per_token) / model.experts;
  return model.experts * (1.0 - std::pow(missed, rows));
}

Result<std::optional<rollout::StepCost>> load_profile(const std::string& path, bool needed) {
  if (path.empty()) {
    if (!needed) return std::optional<rollout::StepCost>();
    return fail(Code::kInvalidArgument,
                "engine.step_cost_file: device.preset = \"{}\" needs the file that `rondo profile` writes",
                kProfiledDevice);
  }
  RONDO_ASSIGN_CTX(const std::string text, read_file(path), "engine.step_cost_file");
  RONDO_ASSIGN_CTX(rollout::StepCost cost, rollout::parse_step_cost(text), "engine.step_cost_file");
  return std::optional(std::move(cost));
}

}  // namespace

EngineModel::EngineModel(const Config& config, const Device& device, const ModelShape& model,
                         std::optional<rollout::StepCost> measured)
    : config_(config),
      device_(device),
      model_(model),
      measured_(std::move(measured)),
      bandwidth_(device.memory_bandwidth * config.memory_efficiency),
      flops_(device.flops * config.flops_efficiency),
      kv_tokens_(config.kv_tokens) {}

Result<EngineModel> EngineModel::create(const Config& config, const Device& device, const ModelShape& model) {
  const bool profiled = device.name == kProfiledDevice;
  RONDO_ASSIGN(auto measured, load_profile(config.step_cost_file, profiled));
  EngineModel result(config, device, model, std::move(measured));
  if (result.kv_tokens_ == 0 && profiled) {
    return fail(Code::kInvalidArgument, "engine.kv_tokens: device.preset = \"{}\" needs it", device.name);
  }
  if (result.kv_tokens_ == 0) RONDO_TRY(result.fill_memory());
  RONDO_TRY(result.check_times());
  return result;
}

// KV tokens beside the weights on so many devices; at most 0 where even those do not fit.
std::int64_t EngineModel::kv_room(int devices) const {
  const double per_device =
      device_.memory * config_.memory_share - static_cast<double>(config_.reserved_memory.bytes);
  const double left = devices * per_device - weight_memory(devices);
  const double copies = config_.parallelism == Parallelism::kTensor ? devices / kv_shards(devices) : 1.0;
  return static_cast<std::int64_t>(left / (model_.kv_bytes_per_token() * copies));
}

Result<void> EngineModel::fill_memory() {
  kv_tokens_ = kv_room(config_.devices);
  if (kv_tokens_ > 0) return {};
  int enough = config_.devices;
  while (enough <= kMostDevices && kv_room(enough) <= 0) ++enough;
  const std::string advice =
      enough <= kMostDevices
          ? fmt::format("at least {} devices are needed, or a greater engine.memory_share", enough)
          : "more devices do not help: raise engine.memory_share, or lower engine.reserved_memory or "
            "model.kv_value_bytes";
  return fail(
      Code::kResourceExhausted,
      "engine.devices: {} x {} of {:.0f} GB, of which {:.0f} % less {:.0f} GB may be used, do not hold "
      "the {:.0f} GB of weights of {} and KV; {}",
      config_.devices, device_.name, device_.memory / 1e9, 100.0 * config_.memory_share,
      static_cast<double>(config_.reserved_memory.bytes) / 1e9, weight_memory(config_.devices) / 1e9,
      model_.name, advice);
}

// A clock that stands still or overflows would end no rollout. The least load stands for all.
Result<void> EngineModel::check_times() const {
  constexpr double kShortest = 1e-9, kLongest = 1e5;  // seconds
  const double tokens = static_cast<double>(kv_tokens_);
  for (const double seconds :
       {step_time({1, 1}, 0).seconds(0), step_time({1, 2}, 0).seconds(0),
        step_time({1, 1}, tokens).seconds(tokens), std::max(kShortest, prefill_s(1, 0))}) {
    if (seconds >= kShortest && seconds <= kLongest) continue;
    return fail(
        Code::kInvalidArgument,
        "a step of one response would take {:g} s, where {:g} to {:g} s is plausible; check "
        "engine.memory_efficiency, engine.flops_efficiency, the engine's overheads and the device's figures",
        seconds, kShortest, kLongest);
  }
  return {};
}

// Tensor parallelism splits KV by heads, and a latent has only one.
double EngineModel::kv_shards(int devices) const {
  if (config_.parallelism == Parallelism::kDataWithExperts) return devices;
  return model_.latent() ? 1.0 : std::min(devices, model_.kv_heads);
}

double EngineModel::weight_memory(int devices) const {
  const double total = model_.total_params();
  if (config_.parallelism == Parallelism::kTensor) return total * model_.weight_bytes;
  const double replicated = total - model_.routed_params();
  return (model_.routed_params() + devices * replicated) * model_.weight_bytes;
}

// Of a collective over all devices: its slowest link counts.
double EngineModel::link_bandwidth() const {
  return config_.devices > device_.peers ? device_.rdma_bandwidth : device_.peer_bandwidth;
}

double EngineModel::linear_s(double rows) const {
  const bool split = config_.parallelism == Parallelism::kTensor;
  const double devices = config_.devices;
  const double dense = model_.dense_params();
  const double dense_read = dense * model_.weight_bytes / (split ? devices : 1.0) / bandwidth_;
  double time = std::max(dense_read, 2.0 * dense * rows / devices / flops_);
  if (model_.expert_layers() == 0) return time;
  const double layer_params = model_.expert_layers() * model_.expert_params();
  const double read =
      touched_experts(model_, rows) * layer_params * model_.weight_bytes / devices / bandwidth_;
  const double compute = 2.0 * model_.experts_per_token * layer_params * rows / devices / flops_;
  return time + std::max(read, compute) * (split ? 1.0 : config_.imbalance);
}

double EngineModel::collectives_s(double rows) const {
  if (config_.devices == 1) return 0.0;
  const double row = model_.hidden * kActivationBytes;
  if (config_.parallelism == Parallelism::kTensor) {  // two all-reduces per layer
    const double bytes = 2.0 * (config_.devices - 1) / config_.devices * rows * row;
    return 2.0 * model_.layers * (config_.collective_latency_us * 1e-6 + bytes / link_bandwidth());
  }
  // Rows go to their experts and back.
  const double bytes = rows / config_.devices * model_.experts_per_token * row * config_.imbalance;
  return 2.0 * model_.expert_layers() * (config_.collective_latency_us * 1e-6 + bytes / link_bandwidth());
}

StepTime EngineModel::step_time(const StepLoad& load, double kv_tokens) const {
  if (measured_) return measured_time(load, kv_tokens);
  double fixed = config_.step_overhead_ms * 1e-3 + config_.sequence_overhead_us * 1e-6 * load.sequences;
  if (load.speculative()) {
    fixed += config_.spec_step_overhead_ms * 1e-3 + config_.spec_sequence_overhead_us * 1e-6 * load.sequences;
  }
  const double read = model_.kv_bytes_per_token() / kv_shards(config_.devices) / bandwidth_;
  const double rows_per_sequence = load.rows / std::max(1.0, load.sequences);
  const double compute = model_.attention_flops() * rows_per_sequence / config_.devices / flops_;
  const double uneven = config_.parallelism == Parallelism::kTensor ? 1.0 : config_.imbalance;
  return {.fixed_s = fixed + linear_s(load.rows) + collectives_s(load.rows),
          .per_kv_token_s = std::max(read, compute) * uneven};
}

// The profile is piecewise linear in the mean context: the line through where it is now.
StepTime EngineModel::measured_time(const StepLoad& load, double kv_tokens) const {
  const double batch = std::max(1.0, load.sequences);
  const double gamma = load.rows / batch - 1.0;
  const double context = kv_tokens / batch;
  constexpr double kStride = 16.0;
  const double here = measured_->seconds(batch, gamma, context);
  const double further = measured_->seconds(batch, gamma, context + kStride);
  const double slope = std::max(0.0, further - here) / (kStride * batch);
  return {.fixed_s = here - slope * kv_tokens, .per_kv_token_s = slope};
}

double EngineModel::prefill_s(double tokens, double cached) const {
  if (tokens <= 0.0) return 0.0;
  if (measured_) {
    // Rows cost what further draft rows cost at the largest batch.
    const rollout::StepCost::Axes& axes = measured_->axes();
    const double batch = axes.batches.back();
    const double gamma = axes.gammas.back();
    const double context = axes.contexts.front();
    if (gamma == 0.0) return tokens * measured_->seconds(batch, 0, context) / batch;
    const double extra = measured_->seconds(batch, gamma, context) - measured_->seconds(batch, 0, context);
    return tokens * std::max(0.0, extra) / (batch * gamma);
  }
  const double linear = 2.0 * model_.active_params() * tokens;
  // Of MLA, prefill expands keys and values: head_dim + rope_dim and head_dim wide.
  const double width = 2.0 * model_.head_dim + model_.rope_dim;
  const double attention = 2.0 * model_.layers * model_.heads * width * tokens * (cached + tokens / 2.0);
  return (linear + attention) / config_.devices / flops_;
}

Result<rollout::StepCost> EngineModel::as_profile(int max_gamma) const {
  if (measured_) return *measured_;
  rollout::StepCost::Axes axes{
      .batches = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}, .gammas = {0}, .contexts = {0, 65536}};
  for (int gamma = 1; gamma <= max_gamma; gamma = gamma < 4 ? gamma + 1 : gamma * 2) {
    axes.gammas.push_back(gamma);
  }
  std::vector<double> seconds;
  for (const double batch : axes.batches) {
    for (const double gamma : axes.gammas) {
      for (const double context : axes.contexts) {
        const StepTime time = step_time({.sequences = batch, .rows = batch * (1 + gamma)}, batch * context);
        seconds.push_back(time.seconds(batch * context));
      }
    }
  }
  RONDO_ASSIGN_CTX(rollout::StepCost cost, rollout::StepCost::create(std::move(axes), std::move(seconds)),
                   "the times that engine and device give steps of up to 1024 responses with drafts");
  return cost;
}

}  // namespace rondo::sim
