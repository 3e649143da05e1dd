// Workload: all settings of a simulation, as a TOML file has them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/byte_size.h"
#include "rollout/draft_length.h"
#include "rollout/scheduler.h"
#include "sim/draft_gain.h"
#include "sim/engine_model.h"
#include "sim/lengths.h"
#include "sim/simulation.h"
#include "sim/trace.h"

namespace rondo::sim {

struct ClusterConfig {
  int instances = 1;
  int max_running = 256;
  double watermark = 0.01;
  double chunk_overhead_ms = 5.0;
  config::ByteSize host_kv_memory{64 * config::kGiB};
  config::ByteSize disk_kv_memory;

  template <class V>
  void visit(V& v) {
    v.field("instances", instances, "Inference instances", {.min = 1, .max = 1 << 16});
    v.field("max_running", max_running, "Most responses that run at a time on an instance", {.min = 1});
    v.field("watermark", watermark, "Undivided policies: share of KV that an admission must leave free",
            {.min = 0, .below = 1});
    v.field("chunk_overhead_ms", chunk_overhead_ms, "From the scheduler's decision to a chunk's start",
            {.min = 0, .max = 1e9});
    v.field("host_kv_memory", host_kv_memory, "Host memory per instance for KV that waits");
    v.field("disk_kv_memory", disk_kv_memory, "Disk per instance for KV that waits");
  }
};

/// A preset with figures of one's own; 0 keeps the preset's.
struct DeviceConfig {
  std::string preset = "h800";
  double tflops = 0.0;
  double memory_bandwidth_gb_s = 0.0;
  double memory_gb = 0.0;
  double peer_gb_s = 0.0;
  int peers = 0;
  double rdma_gb_s = 0.0;
  double host_gb_s = 0.0;
  double disk_gb_s = 0.0;

  Result<void> validate() const;
  template <class V>
  void visit(V& v) {
    v.field("preset", preset, "h100, h800, h200, ascend_910c, or cpu with engine.step_cost_file");
    v.field("tflops", tflops, "Dense 16-bit TFLOP/s; 0: the preset's, as below", {.min = 0});
    v.field("memory_bandwidth_gb_s", memory_bandwidth_gb_s, "GB/s of its memory", {.min = 0});
    v.field("memory_gb", memory_gb, "GB of its memory", {.min = 0});
    v.field("peer_gb_s", peer_gb_s, "GB/s within a fast domain (a node, a pod), one way", {.min = 0});
    v.field("peers", peers, "Devices of a fast domain; 0: the preset's", {.min = 0});
    v.field("rdma_gb_s", rdma_gb_s, "GB/s beyond it, and to other instances", {.min = 0});
    v.field("host_gb_s", host_gb_s, "GB/s to host memory", {.min = 0});
    v.field("disk_gb_s", disk_gb_s, "GB/s to disk", {.min = 0});
  }
};

struct ModelConfig {
  std::string preset = "moonlight-16b-a3b";
  double kv_value_bytes = 0.0;

  template <class V>
  void visit(V& v) {
    v.field("preset", preset,
            "moonlight-16b-a3b, qwen2-vl-72b, kimi-k2, qwen3-32b, qwen3-235b-a22b or smollm2-135m");
    v.field("kv_value_bytes", kv_value_bytes, "Bytes of a stored KV number; 0: 2", {.min = 0});
  }
  Result<void> validate() const;
};

struct SpeculationConfig {
  bool enabled = false;
  rollout::DraftLengthPlanner::Config length;
  DraftGain::Config gain;

  template <class V>
  void visit(V& v) {
    v.field("enabled", enabled, "Grouped speculative decoding");
    v.section("length", length, "Draft lengths, as rondo train chooses them");
    v.section("gain", gain, "How drafts fare, by finished siblings");
  }
};

/// Settings under which the rollout is repeated, and what others published about them.
struct CompareConfig {
  std::vector<std::string> variants;
  std::vector<double> published_speedup;
  std::vector<double> published_tail;

  template <class V>
  void visit(V& v) {
    v.field("variants", variants,
            "\"label: policy[+spec] [key=value …]\" each; the first is what others are compared with. Empty: "
            "schedule.policy alone. +spec turns speculation on; without it speculation.enabled counts");
    v.field("published_speedup", published_speedup,
            "Published throughput of each variant over that of the first; 0: none", {.min = 0});
    v.field("published_tail", published_tail, "Published tail of each variant over the first's; -1: none",
            {.min = -1});
  }
  Result<void> validate() const;
};

struct Workload {
  std::string name;
  std::int64_t seed = 1;
  ClusterConfig cluster;
  DeviceConfig device;
  ModelConfig model;
  EngineModel::Config engine;
  LengthConfig lengths;
  TraceConfig trace;
  rollout::Scheduler::Config schedule;
  SpeculationConfig speculation;
  CompareConfig compare;

  template <class V>
  void visit(V& v) {
    v.field("name", name, "Title of the report");
    v.field("seed", seed, "Of lengths and draft acceptance; further seeds follow", {.min = 0});
    v.section("cluster", cluster, "Instances and where KV waits");
    v.section("device", device, "What an instance is made of");
    v.section("model", model, "What it runs");
    v.section("engine", engine, "How fast it does");
    v.section("lengths", lengths, "Prompts and lengths of responses, drawn");
    v.section("trace", trace, "Prompts and lengths of responses, from a file");
    v.section("schedule", schedule, "The scheduler, as [rollout] of rondo train");
    v.section("speculation", speculation, "Speculative decoding");
    v.section("compare", compare, "Variants side by side");
  }
};

/// Reads a file (may be empty) and overrides, and checks them. schedule.policy is refused as an override
/// where compare.variants name policies of their own.
Result<Workload> load_workload(const std::string& file, std::span<const std::string> overrides);
/// The workload with `key=value` overrides, checked in the same way.
Result<Workload> with_overrides(Workload workload, std::span<const std::string> overrides);
/// Every setting with its value and doc, as TOML.
std::string annotated_toml(const Workload& workload);

/// One row of a comparison.
struct Variant {
  std::string label;
  Workload workload;
};
/// The variants of compare.variants.
Result<std::vector<Variant>> variants_of(const Workload& workload);

/// What the presets make of it.
Result<ClusterSpec> resolve(const Workload& workload);

}  // namespace rondo::sim
