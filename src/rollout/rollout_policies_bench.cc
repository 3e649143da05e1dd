// The policies side by side on a model cluster: total and tail time over paired seeds.
//
//   rollout_policies_bench [num_seeds] [workload] [first_seed]
//
// Each column is the mean over seeds, with its standard error, of the policy's time divided by that of
// oracle_lfs on the same lengths. "tail" is the time in which only the last 10 % of responses run, divided by
// the oracle's total. seer_plus has learned from the step before, drawn independently.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kv/block_pool.h"
#include "rollout/fake_cluster.h"
#include "rollout/length_model.h"
#include "rollout/policy.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {
namespace {

struct Workload {
  std::string_view name;
  LengthModel lengths;
  int num_groups = 0;
  int num_samples = 0;
  std::int32_t prompt_tokens = 0;
  int num_instances = 0;
  std::int64_t kv_tokens = 0;  // per instance
  std::int32_t max_running = 0;
  FakeCluster::Cost cost;
  int move_threshold = 512;
};

// Sizes of Table 3 of Seer (arXiv 2511.14617) (fewer instances where noted), and of a small model on a CPU.
const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"long, many instances",
       {16000, 0.9, 0.7, 65536},
       400,
       8,
       300,
       32,
       800000,
       256,
       {0.012, 5e-5, 1e-8, 2e-5, 2e-7}},
      {"long, weak groups",
       {16000, 0.9, 0.2, 65536},
       400,
       8,
       300,
       32,
       800000,
       256,
       {0.012, 5e-5, 1e-8, 2e-5, 2e-7}},
      {"wide, short",
       {5000, 1.0, 0.8, 40960},
       600,
       16,
       1000,
       16,
       1300000,
       512,
       {0.02, 5e-5, 8e-9, 2e-5, 1e-6}},
      {"few instances",
       {30000, 0.8, 0.7, 98304},
       200,
       8,
       300,
       2,
       6000000,
       800,
       {0.03, 2e-5, 2e-9, 2e-5, 1e-7}},
      {"small", {150, 1.0, 0.6, 1024}, 48, 8, 80, 2, 6400, 32, {0.02, 0.004, 0, 0.002, 5e-6}, 16},
  };
  return all;
}

struct Outcome {
  double total = 0.0;
  double tail = 0.0;
  std::int64_t preemptions = 0;
  std::int64_t moves = 0;
};

Outcome run(const Workload& workload, Policy policy, int chunk_tokens, std::uint64_t seed) {
  const auto groups = [&](std::uint64_t draw) {
    return draw_groups(workload.lengths, workload.num_groups, workload.num_samples, workload.prompt_tokens,
                       draw);
  };
  const LengthPrior prior = learn({}, sample_of(groups(seed + 1000)));
  const auto scheduler = *Scheduler::create(
      {.policy = policy, .chunk_tokens = chunk_tokens, .move_threshold = workload.move_threshold},
      {.host_blocks = 1 << 30}, prior);
  FakeCluster cluster(*scheduler, workload.cost);
  for (int i = 0; i < workload.num_instances; ++i) {
    cluster.add_instance({InstanceId(i), workload.kv_tokens / kv::kBlockTokens, workload.max_running});
  }
  for (const GroupSpec& group : groups(seed)) cluster.add_group(group);
  while (cluster.step()) {
  }
  const auto done = cluster.done();
  RONDO_CHECK_EQ(std::ssize(done), std::int64_t{workload.num_groups} * workload.num_samples);
  const double tail_start = done[done.size() - 1 - done.size() / 10].time;
  return {done.back().time, done.back().time - tail_start, cluster.preemptions(), scheduler->stats().moves};
}

struct Mean {
  double sum = 0.0;
  double squares = 0.0;
  int count = 0;
  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  double mean() const { return sum / count; }
  double error() const {
    return count < 2 ? 0.0 : std::sqrt((squares / count - mean() * mean()) / (count - 1));
  }
};

void compare(const Workload& workload, int num_seeds, std::uint64_t first_seed) {
  fmt::print("\n{}: {} x {} responses, {} instances\n", workload.name, workload.num_groups,
             workload.num_samples, workload.num_instances);
  fmt::print("{:18} {:>6} {:>16} {:>16} {:>9} {:>9}\n", "policy", "chunk", "total", "tail", "preempted",
             "moves");
  std::map<int, Outcome> oracle;
  const auto report = [&](Policy policy, std::string_view name, int chunk) {
    Mean total;
    Mean tail;
    Mean preemptions;
    Mean moves;
    for (int seed = 0; seed < num_seeds; ++seed) {
      const Outcome outcome = run(workload, policy, chunk, first_seed + static_cast<std::uint64_t>(seed));
      if (policy == Policy::kOracleLfs && chunk == 0) oracle[seed] = outcome;
      total.add(outcome.total / oracle[seed].total);
      tail.add(outcome.tail / oracle[seed].total);
      preemptions.add(static_cast<double>(outcome.preemptions));
      moves.add(static_cast<double>(outcome.moves));
    }
    fmt::print("{:18} {:>6} {:>8.3f} ±{:.3f} {:>9.3f} ±{:.3f} {:>9.0f} {:>9.0f}\n", name, chunk, total.mean(),
               total.error(), tail.mean(), tail.error(), preemptions.mean(), moves.mean());
  };
  report(Policy::kOracleLfs, "oracle_lfs", 0);
  for (const auto& [policy, name] : enum_names(Policy{})) {
    if (policy != Policy::kOracleLfs && policy != Policy::kPartial) report(policy, name, 0);
  }
  const int coarse = workload.lengths.max / 8;
  for (const Policy policy : {Policy::kSeer, Policy::kSeerPlus}) {
    report(policy, policy == Policy::kSeer ? "seer" : "seer_plus", coarse);
  }
}

}  // namespace
}  // namespace rondo::rollout

int main(int argc, char** argv) {
  const int num_seeds = argc > 1 ? std::atoi(argv[1]) : 10;
  const std::string only = argc > 2 ? argv[2] : "";
  const auto first_seed = static_cast<std::uint64_t>(argc > 3 ? std::atoll(argv[3]) : 0);
  for (const auto& workload : rondo::rollout::workloads()) {
    if (only.empty() || workload.name.find(only) == 0)
      rondo::rollout::compare(workload, num_seeds, first_seed);
  }
  return 0;
}
