// Instance: a simulated inference instance; all running requests advance together from event to event.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/drafting.h"
#include "sim/engine_model.h"
#include "sim/recording.h"
#include "sim/request_state.h"

namespace rondo::sim {

/// Continuous batching under a simulated clock.
///
/// Between two events the batch is the same, so the time of n steps has a closed form: requests of a lane
/// gain the lane's rate in tokens per step, and a step's time grows with the KV that all of them read.
/// Running siblings hold the full blocks of their prompt once. Without reservations the instance queues
/// requests in turn, admits while memory and max_running allow, computes a prompt only if no sibling runs,
/// and when KV is full the request admitted last loses its KV, queues first, and is prefilled again. Prefill
/// stops the instance. A prompt is not kept when its last running sample ends, though siblings queue.
///
/// Does not know the scheduler. The owner calls run_to() at next_event_s(), and retime() after any other
/// change, before the next event. One owner thread.
class Instance final {
 public:
  struct Limits {
    bool preempts = false;  // nothing is reserved: queue, grow and preempt
    std::int32_t max_running = 0;
    double watermark = 0.0;  // of KV, free after an admission
  };
  struct Stats {
    double busy_s = 0.0;
    double last_busy_s = 0.0;    // when something last ran
    double running_s = 0.0;      // time, counted once per running request
    double request_steps = 0.0;  // steps, each counted once per running request
    std::int64_t preemptions = 0;
    std::int64_t recomputed_tokens = 0;  // by preemption
    double tokens = 0.0;                 // generated, those that a preemption cut off included
    std::int64_t events = 0;
  };
  enum class Event : std::uint8_t { kNone, kArrival, kChunkEnd, kFull };
  /// An event, and the request that began, has reached its chunk_end and left, or lost its KV.
  struct Happened {
    Event event = Event::kNone;
    RequestIndex request = -1;
  };

  /// `requests` and `engine` outlive the instance. `recording` may be null.
  Instance(std::int32_t index, const EngineModel& engine, const Limits& limits,
           std::vector<RequestState>& requests, Recording* recording);
  /// Turns speculation on.
  void draft_with(Drafting drafting) { drafting_ = std::move(drafting); }

  /// The request starts here at `start_s` >= now, all but `cached` tokens of its context prefilled first.
  void deliver(RequestIndex request, double now, double start_s, std::int32_t cached);
  /// The request queues here (if the instance preempts).
  void enqueue(RequestIndex request, double now);
  /// The request drafts as those of another lane from now on.
  void change_lane(RequestIndex request, std::uint8_t lane, double now);

  /// Admits what is queued and finds the next event.
  void retime(double now);
  double next_event_s() const { return next_s_; }
  /// Does the next event.
  Happened run_to(double time);
  /// Ends the simulation: what runs stops with the whole tokens that it has. Nothing may follow.
  void stop(double now);

  const Stats& stats() const { return stats_; }
  /// Aborts if the state contradicts itself or, without reservations, what runs needs more KV than there is.
  /// (Reservations are the scheduler's, which knows what groups share.) After retime(); for tests: it visits
  /// every request.
  void check_invariants() const;

 private:
  struct Entry {
    double end = 0.0;  // of the lane's clock
    RequestIndex request = 0;
    std::uint32_t stamp = 0;
    bool operator>(const Entry& other) const {
      return std::pair(end, request) > std::pair(other.end, other.request);
    }
  };
  struct Lane {
    double clock = 0.0;       // tokens that a request running from the start would have
    std::vector<Entry> heap;  // least end first; entries with an old stamp are void
  };
  struct Arrival {
    double time = 0.0;
    RequestIndex request = 0;
    std::int32_t cached = 0;
    bool operator>(const Arrival& other) const {
      return std::pair(time, request) > std::pair(other.time, other.request);
    }
  };

  void begin(RequestIndex request, std::int32_t cached);
  void enter_lane(RequestIndex request, std::uint8_t lane);
  void leave_lane(RequestState& request);
  void stop_running(RequestIndex request, std::int32_t generated);
  void record(RequestIndex request, std::int32_t generated);
  void advance(double now);
  void do_steps(double steps, double until);
  double cost(double steps) const;
  double steps_within(double seconds) const;
  void replan();
  void drop_void_entries(Lane& lane);
  double steps_to_chunk_end();
  double steps_to_full() const;
  void admit();
  bool fits(const RequestState& request) const;
  std::int32_t prompt_of_siblings(const RequestState& request) const;
  double held_tokens() const { return kv_tokens_ - shared_tokens_; }
  RequestIndex preempt_latest();
  double done_now(const RequestState& request) const;
  std::int32_t whole_tokens(const RequestState& request) const;
  std::vector<RequestIndex> running_requests() const;
  RequestIndex end_chunk();

  std::int32_t index_;
  const EngineModel* engine_;
  Limits limits_;
  std::vector<RequestState>* requests_;
  Recording* recording_;
  std::optional<Drafting> drafting_;

  std::array<Lane, kNumLanes> lanes_;
  LaneCounts counts_{};
  std::int32_t running_ = 0;
  double kv_tokens_ = 0.0;      // of all contexts, as attention reads them
  double shared_tokens_ = 0.0;  // of these, held by a sibling as well: whole numbers, so exact
  std::unordered_map<std::int32_t, std::int32_t> siblings_;  // running requests by group
  double synced_ = 0.0;  // how far the state is counted; beyond now during a prefill
  StepTime step_;
  double growth_ = 0.0;  // tokens per step, of all together
  bool changed_ = true;  // what runs, since step_ was computed
  double steps_since_plan_ = 0.0;

  std::vector<Arrival> arrivals_;  // a heap, earliest first
  std::deque<RequestIndex> queue_;
  std::vector<RequestIndex> admitted_;  // in order; those that have ended are void

  double next_s_ = std::numeric_limits<double>::infinity();
  Event next_ = Event::kNone;
  double next_steps_ = 0.0;
  std::size_t next_lane_ = 0;
  Stats stats_;
};

}  // namespace rondo::sim
