// Outcome: what a simulated rollout took.
#pragma once

#include <cstdint>

namespace rondo::sim {

struct Outcome {
  std::uint64_t seed = 0;
  double total_s = 0.0;
  double tail_s = 0.0;  // while only the last tenth of the responses to finish runs (timeline::tail_begin)
  std::int64_t responses = 0;
  std::int64_t tokens = 0;             // of complete groups
  std::int64_t unfinished_tokens = 0;  // generated, of groups that were given up
  double idle_share = 0.0;             // of all instances' time, in which nothing runs
  double finish_spread = 0.0;          // last minus first instance to end, over the total
  double mean_running = 0.0;           // responses per instance, while it runs any
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t migrations = 0;  // chunks whose KV came from elsewhere
  double migrated_bytes = 0.0;
  double evicted_bytes = 0.0;  // from instances to host and disk
  double accept_length = 1.0;  // tokens per response and step
  std::int64_t chunks = 0;
  std::int64_t events = 0;
  double request_steps = 0.0;
  // Of all assignments, moves and arrivals of KV, preemptions and ends, with their times.
  std::uint64_t event_hash = 0;

  // Measured; they differ from run to run.
  double wall_s = 0.0;
  double decision_us = 0.0;  // of the scheduler, per assignment, its events included

  double tokens_per_s() const { return static_cast<double>(tokens) / total_s; }
};

}  // namespace rondo::sim
