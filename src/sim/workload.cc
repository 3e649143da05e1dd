#include "sim/workload.h"

#include <sstream>
#include <utility>

#include "config/dump.h"
#include "config/load.h"
#include "rollout/policy.h"

namespace rondo::sim {
namespace {

constexpr std::string_view kPolicyKey = "schedule.policy";

void take_if_set(double value, double unit, double& figure) {
  if (value > 0.0) figure = value * unit;
}

Result<Device> device_of(const DeviceConfig& config) {
  RONDO_ASSIGN(Device device, find_device(config.preset));
  constexpr double kGb = 1e9;
  take_if_set(config.tflops, 1e12, device.flops);
  take_if_set(config.memory_bandwidth_gb_s, kGb, device.memory_bandwidth);
  take_if_set(config.memory_gb, kGb, device.memory);
  take_if_set(config.peer_gb_s, kGb, device.peer_bandwidth);
  if (config.peers > 0) device.peers = config.peers;
  take_if_set(config.rdma_gb_s, kGb, device.rdma_bandwidth);
  take_if_set(config.host_gb_s, kGb, device.host_bandwidth);
  take_if_set(config.disk_gb_s, kGb, device.disk_bandwidth);
  return device;
}

bool sets(const std::string& override_text, std::string_view key) {
  return override_text.starts_with(key) && override_text.substr(key.size()).starts_with('=');
}

Result<Workload> checked(Workload workload, std::span<const std::string> overrides) {
  const config::FieldList fields(workload);
  RONDO_TRY(config::apply_overrides(fields, overrides));
  RONDO_TRY(fields.validate());
  return workload;
}

// Each variant has a policy, so one from elsewhere would be without effect.
Result<void> refuse_policy(const Workload& workload, std::span<const std::string> overrides) {
  if (workload.compare.variants.empty()) return {};
  for (const std::string& text : overrides) {
    if (!sets(text, kPolicyKey)) continue;
    return fail(Code::kInvalidArgument,
                "{} has no effect beside compare.variants, which name the policies: set "
                "compare.variants={} (and compare.published_speedup=[] compare.published_tail=[]) instead",
                text, text.substr(kPolicyKey.size() + 1));
  }
  return {};
}

// What a variant says twice.
Result<void> check_variant(const rollout::PolicyChoice& choice, std::span<const std::string> overrides) {
  for (const std::string& text : overrides) {
    if (sets(text, kPolicyKey)) {
      return fail(Code::kInvalidArgument,
                  "the variant's policy is the word behind its label; put it there "
                  "instead of {}",
                  text);
    }
    if (choice.speculates && sets(text, "speculation.enabled")) {
      return fail(Code::kInvalidArgument, "+spec turns speculation on; leave it or {} out", text);
    }
  }
  return {};
}

Result<Variant> parse_variant(const Workload& workload, const std::string& text) {
  const std::size_t colon = text.find(": ");
  std::istringstream words(colon == std::string::npos ? text : text.substr(colon + 2));
  std::string policy;
  words >> policy;
  std::vector<std::string> overrides;
  for (std::string word; words >> word;) overrides.push_back(word);
  RONDO_ASSIGN(const rollout::PolicyChoice choice, rollout::parse_policy(policy));
  RONDO_TRY(check_variant(choice, overrides));
  RONDO_ASSIGN(Workload changed, checked(workload, overrides));
  changed.schedule.policy = choice.policy;
  changed.speculation.enabled = changed.speculation.enabled || choice.speculates;
  return Variant{.label = colon == std::string::npos ? text : text.substr(0, colon),
                 .workload = std::move(changed)};
}

}  // namespace

Result<void> DeviceConfig::validate() const {
  for (const auto& [name, figure] :
       {std::pair{"tflops", tflops}, std::pair{"memory_bandwidth_gb_s", memory_bandwidth_gb_s},
        std::pair{"memory_gb", memory_gb}}) {
    if (preset != kProfiledDevice || figure == 0.0) continue;
    return fail(
        Code::kInvalidArgument,
        "{} has no effect with preset = \"{}\", whose steps engine.step_cost_file gives and whose room "
        "engine.kv_tokens; leave it out",
        name, preset);
  }
  constexpr double kLeast = 1e-6, kMost = 1e9;
  for (const auto& [name, figure] :
       {std::pair{"tflops", tflops}, std::pair{"memory_bandwidth_gb_s", memory_bandwidth_gb_s},
        std::pair{"memory_gb", memory_gb}, std::pair{"peer_gb_s", peer_gb_s},
        std::pair{"rdma_gb_s", rdma_gb_s}, std::pair{"host_gb_s", host_gb_s},
        std::pair{"disk_gb_s", disk_gb_s}}) {
    if (figure == 0.0 || (figure >= kLeast && figure <= kMost)) continue;
    return fail(Code::kInvalidArgument, "{} is {:g}; it must be 0, for the preset's, or from {:g} to {:g}",
                name, figure, kLeast, kMost);
  }
  return {};
}

Result<void> ModelConfig::validate() const {
  constexpr double kLeast = 0.5, kMost = 8.0;  // 4 to 64 bits
  if (kv_value_bytes == 0.0 || (kv_value_bytes >= kLeast && kv_value_bytes <= kMost)) return {};
  return fail(Code::kInvalidArgument, "kv_value_bytes is {:g}; it must be 0, for 2, or from {:g} to {:g}",
              kv_value_bytes, kLeast, kMost);
}

Result<void> CompareConfig::validate() const {
  for (const auto* published : {&published_speedup, &published_tail}) {
    if (published->empty() || published->size() == variants.size()) continue;
    return fail(
        Code::kInvalidArgument,
        "published_speedup and published_tail need one number for each of the {} variants, not {}; for "
        "variants of your own set compare.published_speedup=[] compare.published_tail=[]",
        variants.size(), published->size());
  }
  return {};
}

Result<Workload> load_workload(const std::string& file, std::span<const std::string> overrides) {
  Workload from_file;
  if (!file.empty()) RONDO_TRY(config::load_file(config::FieldList(from_file), file));
  return with_overrides(std::move(from_file), overrides);
}

Result<Workload> with_overrides(Workload workload, std::span<const std::string> overrides) {
  RONDO_ASSIGN(Workload changed, checked(std::move(workload), overrides));
  RONDO_TRY(refuse_policy(changed, overrides));
  return changed;
}

std::string annotated_toml(const Workload& workload) {
  return config::to_annotated_toml_of(workload);
}

Result<std::vector<Variant>> variants_of(const Workload& workload) {
  std::vector<Variant> variants;
  for (const std::string& text : workload.compare.variants) {
    RONDO_ASSIGN_CTX(Variant variant, parse_variant(workload, text), "compare.variants, '" + text + "'");
    variants.push_back(std::move(variant));
  }
  if (variants.empty()) {
    for (const auto& [value, text] : enum_names(rollout::Policy{})) {
      if (value == workload.schedule.policy) variants.push_back({.label = text, .workload = workload});
    }
  }
  return variants;
}

Result<ClusterSpec> resolve(const Workload& workload) {
  RONDO_ASSIGN(const Device device, device_of(workload.device));
  RONDO_ASSIGN(ModelShape model, find_model(workload.model.preset));
  take_if_set(workload.model.kv_value_bytes, 1.0, model.kv_value_bytes);
  RONDO_ASSIGN(EngineModel engine, EngineModel::create(workload.engine, device, model));
  const ClusterConfig& cluster = workload.cluster;
  return ClusterSpec{.engine = std::move(engine),
                     .schedule = workload.schedule,
                     .instances = cluster.instances,
                     .max_running = cluster.max_running,
                     .watermark = cluster.watermark,
                     .chunk_overhead_s = cluster.chunk_overhead_ms * 1e-3,
                     .host_kv_bytes = static_cast<double>(cluster.host_kv_memory.bytes),
                     .disk_kv_bytes = static_cast<double>(cluster.disk_kv_memory.bytes),
                     .speculates = workload.speculation.enabled,
                     .drafts = workload.speculation.length,
                     .gain = DraftGain(workload.speculation.gain)};
}

}  // namespace rondo::sim
