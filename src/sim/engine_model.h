// EngineModel: how long an inference instance takes for a step, and how much KV it holds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "config/byte_size.h"
#include "rollout/step_cost.h"
#include "sim/device.h"
#include "sim/model_shape.h"

namespace rondo::sim {

enum class Parallelism {
  kTensor,          // every weight split over the devices of an instance
  kDataWithExperts  // attention per device with requests of its own, experts spread over the devices
};

constexpr auto enum_names(Parallelism) {
  using enum Parallelism;
  return std::array{std::pair{kTensor, "tensor"}, std::pair{kDataWithExperts, "data_expert"}};
}

/// The decoding rows of a step.
struct StepLoad {
  double sequences = 0.0;
  double rows = 0.0;  // tokens computed: one per sequence, and its drafts
  bool speculative() const { return rows > sequences; }
};

/// A step's time for a load: at + per_kv_token * tokens of context of all sequences together.
struct StepTime {
  double fixed_s = 0.0;
  double per_kv_token_s = 0.0;
  double seconds(double kv_tokens) const { return fixed_s + per_kv_token_s * kv_tokens; }
};

/// A roofline by kernel kind: the linear layers take the longer of reading their weights (of experts, those
/// that some row is sent to) and computing the rows, attention the longer of reading KV and computing; to
/// that come collectives and costs per step and per sequence. Or, from a measured profile, its interpolation.
///
/// Does not know requests. Immutable; any thread.
class EngineModel final {
 public:
  static constexpr int kMostDevices = 4096;
  static constexpr double kMostMs = 1e6;  // of an overhead
  struct Config {
    Parallelism parallelism = Parallelism::kTensor;
    int devices = 1;
    double memory_efficiency = 0.8;
    double flops_efficiency = 0.5;
    double step_overhead_ms = 5.0;
    double sequence_overhead_us = 20.0;
    double collective_latency_us = 20.0;
    double imbalance = 1.2;
    double spec_step_overhead_ms = 1.0;
    double spec_sequence_overhead_us = 20.0;
    double memory_share = 0.9;
    config::ByteSize reserved_memory{};
    std::int64_t kv_tokens = 0;
    std::string step_cost_file = {};

    template <class V>
    void visit(V& v) {
      v.field(
          "parallelism", parallelism,
          "How an instance uses its devices. tensor: all weights split; data_expert: attention per device, "
          "experts spread");
      v.field("devices", devices, "Devices of one instance", {.min = 1, .max = kMostDevices});
      v.field("memory_efficiency", memory_efficiency, "Share of the memory bandwidth that kernels reach",
              {.above = 0, .max = 1});
      v.field("flops_efficiency", flops_efficiency, "Share of the peak FLOP/s that kernels reach",
              {.above = 0, .max = 1});
      v.field("step_overhead_ms", step_overhead_ms, "Time of a step beside its kernels",
              {.min = 0, .max = kMostMs});
      v.field("sequence_overhead_us", sequence_overhead_us, "Time of a step per running response",
              {.min = 0, .max = 1e3 * kMostMs});
      v.field("collective_latency_us", collective_latency_us, "Time to start a collective between devices",
              {.min = 0, .max = 1e3 * kMostMs});
      v.field("imbalance", imbalance, "data_expert: load of the busiest device over the mean",
              {.min = 1, .max = kMostDevices});
      v.field("spec_step_overhead_ms", spec_step_overhead_ms,
              "Time that a step with drafts takes beside its rows", {.min = 0, .max = kMostMs});
      v.field("spec_sequence_overhead_us", spec_sequence_overhead_us,
              "Time to draft and verify per running response, beside its rows",
              {.min = 0, .max = 1e3 * kMostMs});
      v.field("memory_share", memory_share, "Share of a device's memory for weights and KV",
              {.above = 0, .max = 1});
      v.field("reserved_memory", reserved_memory,
              "Memory per device that is neither: activations, resident training state");
      v.field("kv_tokens", kv_tokens, "KV tokens of an instance; 0: what the memory leaves", {.min = 0});
      v.field("step_cost_file", step_cost_file,
              "Measured times (a file of `rondo profile`); needed for device.preset = \"cpu\"");
    }
  };

  /// kInvalidArgument or kResourceExhausted names the setting to change.
  static Result<EngineModel> create(const Config& config, const Device& device, const ModelShape& model);

  /// `kv_tokens` is where a measured profile is read; a roofline does not need it.
  StepTime step_time(const StepLoad& load, double kv_tokens) const;
  /// Time to compute `tokens` new positions behind `cached` ones.
  double prefill_s(double tokens, double cached) const;
  /// The grid that `rondo profile` would have measured. kInvalidArgument if it has times that are none.
  Result<rollout::StepCost> as_profile(int max_gamma) const;

  std::int64_t kv_tokens() const { return kv_tokens_; }
  double kv_bytes_per_token() const { return model_.kv_bytes_per_token(); }
  const Device& device() const { return device_; }
  int num_devices() const { return config_.devices; }

 private:
  EngineModel(const Config& config, const Device& device, const ModelShape& model,
              std::optional<rollout::StepCost> measured);
  double linear_s(double rows) const;
  double collectives_s(double rows) const;
  double link_bandwidth() const;
  double kv_shards(int devices) const;
  double weight_memory(int devices) const;
  std::int64_t kv_room(int devices) const;
  Result<void> fill_memory();
  Result<void> check_times() const;
  StepTime measured_time(const StepLoad& load, double kv_tokens) const;

  Config config_;
  Device device_;
  ModelShape model_;
  std::optional<rollout::StepCost> measured_;
  double bandwidth_ = 0.0;  // of one device, as reached
  double flops_ = 0.0;
  std::int64_t kv_tokens_ = 0;
};

}  // namespace rondo::sim
