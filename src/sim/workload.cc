#include "sim/workload.h"

#include <sstream>
#include <utility>

#include "base/text_distance.h"
#include "config/dump.h"
#include "config/load.h"
#include "rollout/policy.h"

namespace rondo::sim {
namespace {

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
  take_if_set(config.rdma_gb_s, kGb, device.rdma_bandwidth);
  take_if_set(config.host_gb_s, kGb, device.host_bandwidth);
  take_if_set(config.disk_gb_s, kGb, device.disk_bandwidth);
  return device;
}

Result<rollout::Policy> parse_policy(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [value, text] : enum_names(rollout::Policy{})) {
    if (name == text) return value;
    names.emplace_back(text);
  }
  return fail(Code::kInvalidArgument, "compare.variants: unknown policy '{}'; the nearest is '{}'", name,
              nearest_name(name, names));
}

Result<Variant> parse_variant(const Workload& workload, const std::string& text) {
  const std::size_t colon = text.find(": ");
  std::istringstream words(colon == std::string::npos ? text : text.substr(colon + 2));
  std::string policy;
  words >> policy;
  constexpr std::string_view kSpec = "+spec";
  const bool speculates = policy.ends_with(kSpec);
  if (speculates) policy.resize(policy.size() - kSpec.size());
  std::vector<std::string> overrides;
  for (std::string word; words >> word;) overrides.push_back(word);
  RONDO_ASSIGN_CTX(Workload changed, with_overrides(workload, overrides), "compare.variants, '" + text + "'");
  RONDO_ASSIGN(changed.schedule.policy, parse_policy(policy));
  changed.speculation.enabled = speculates;
  return Variant{.label = colon == std::string::npos ? text : text.substr(0, colon),
                 .workload = std::move(changed)};
}

}  // namespace

Result<void> CompareConfig::validate() const {
  for (const auto* published : {&published_speedup, &published_tail}) {
    if (published->empty() || published->size() == variants.size()) continue;
    return fail(Code::kInvalidArgument,
                "published_speedup and published_tail need one number for each of the {} variants, not {}",
                variants.size(), published->size());
  }
  return {};
}

Result<Workload> load_workload(const std::string& file, std::span<const std::string> overrides) {
  Workload workload;
  const config::FieldList fields(workload);
  if (!file.empty()) RONDO_TRY(config::load_file(fields, file));
  RONDO_TRY(config::apply_overrides(fields, overrides));
  RONDO_TRY(fields.validate());
  return workload;
}

Result<Workload> with_overrides(Workload workload, std::span<const std::string> overrides) {
  const config::FieldList fields(workload);
  RONDO_TRY(config::apply_overrides(fields, overrides));
  RONDO_TRY(fields.validate());
  return workload;
}

std::string annotated_toml(const Workload& workload) {
  return config::to_annotated_toml_of(workload);
}

Result<std::vector<Variant>> variants_of(const Workload& workload) {
  std::vector<Variant> variants;
  for (const std::string& text : workload.compare.variants) {
    RONDO_ASSIGN(Variant variant, parse_variant(workload, text));
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
