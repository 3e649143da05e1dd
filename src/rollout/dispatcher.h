// Dispatcher: carries the scheduler's assignments out on inference instances until every response is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "base/status.h"
#include "rollout/draft_server.h"
#include "rollout/engine_client.h"
#include "rollout/event_queue.h"
#include "rollout/kv_store.h"
#include "rollout/recorded_scheduler.h"
#include "rollout/scheduler.h"
#include "timeline/recorder.h"

namespace rondo::rollout {

/// Connects scheduler, KV store and instances: the one place through which rollout work enters and leaves.
///
/// Does not generate, decide or keep tokens. What it does changes when and where responses are generated,
/// never what they are. One owner thread, in which run() and its callbacks run; instances answer through the
/// event queue. After an error from run() nothing is in flight, and it can be used again while instances are
/// left.
class Dispatcher final {
 public:
  struct Config {
    int instance_timeout_s = 600;
    int prefetch_responses = 8;

    template <class V>
    void visit(V& v) {
      v.field("instance_timeout_s", instance_timeout_s,
              "An instance that has work and does no step for so long is taken for failed, and its responses "
              "go on elsewhere; 0: never",
              {.min = 0});
      v.field(
          "prefetch_responses", prefetch_responses,
          "Of so many responses that are next, KV on disk is read ahead into host memory, in exchange for "
          "KV that is needed later; 0: none",
          {.min = 0, .max = 4096});
    }
  };
  struct Deps {
    std::unique_ptr<Scheduler> scheduler;
    std::vector<EngineClient*> instances;  // by InstanceId, 0 …; outlive the dispatcher
    EventQueue* events = nullptr;          // the instances'
    std::unique_ptr<KvStore> store;
    const Clock* clock = nullptr;
    DraftServer* drafts = nullptr;  // may be null; told which groups are over
    InputSink input_log = {};       // gets the scheduler's inputs
  };
  /// Counts and times of one run().
  struct Stats {
    std::int64_t chunks = 0;
    std::int64_t migrations = 0;         // chunks on another instance than the one before
    std::int64_t migrated_bytes = 0;     // of KV that went with them
    std::int64_t recomputed_tokens = 0;  // computed before and placed to be computed again
    std::int64_t failed_instances = 0;
    double seconds = 0;
    double tail_seconds = 0;  // during which only the last tenth of the requests to finish was left
  };
  struct Job {
    std::span<const GroupSpec> groups;
    std::int64_t goal_groups = 0;  // `partial`: complete groups wanted; 0: all
    /// Called as each response ends; an error ends the run.
    std::function<Result<void>(RequestId)> finished;
    const std::atomic<bool>* interrupted = nullptr;
    timeline::Recorder* timeline = nullptr;  // gets the chunks, and each instance's load over time
  };

  static Result<std::unique_ptr<Dispatcher>> create(const Config& config, Deps deps);

  /// Runs the job to its end. kCancelled when interrupted; kUnavailable when no instance is left.
  Result<void> run(const Job& job);
  /// New weights: KV is void everywhere, and the lengths seen are learned.
  void new_policy_version();

  const Stats& stats() const { return stats_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  /// See Scheduler. While nothing runs.
  void set_length_prior(const LengthPrior& prior) { scheduler_.set_prior(prior); }

 private:
  struct Flight {
    Assignment assignment;
    bool migrated = false;
    std::shared_ptr<const Parcel> kv;  // what it started from, if that came from elsewhere
  };
  struct Origin {
    InstanceId instance;
    std::weak_ptr<Parcel> parcel;  // whoever needs it keeps it
  };
  struct Pulse {
    std::int64_t heartbeat = -1;
    std::int64_t since_ns = 0;
  };

  Dispatcher(const Config& config, Deps deps);
  EngineClient& client(InstanceId id) { return *instances_[static_cast<std::size_t>(id.value())]; }
  Result<void> work(const Job& job);
  Result<bool> assign_all();
  DraftClass draft_class(RequestId request) const;
  void carry_out(const Assignment& assignment);
  void evict(const Eviction& eviction);
  void evict_prompt(const Eviction& eviction);
  void prefetch();
  std::shared_ptr<const Parcel> fetch(const Assignment& assignment, const KvPlace& place);
  Result<void> handle_batch(const Job& job);
  Result<void> handle(const InstanceEvent& event, const Job& job);
  void record(const Flight& flight, const InstanceEvent& event, timeline::Recorder* timeline);
  void watch_instances(timeline::Recorder& timeline) const;
  void fail_instance(InstanceId id, const std::string& why);
  void drop_lost();
  void check_pulses();
  void abandon_all();
  void settle();
  void group_over(GroupId group);
  void finish_stats(std::int64_t begin_ns);

  Config config_;
  RecordedScheduler scheduler_;
  std::vector<EngineClient*> instances_;
  EventQueue* events_;
  std::unique_ptr<KvStore> store_;
  const Clock* clock_;
  DraftServer* drafts_;
  std::vector<bool> alive_;
  std::vector<Pulse> pulses_;
  std::string last_failure_;
  std::unordered_map<RequestId, Flight> in_flight_;
  std::unordered_map<RequestId, InstanceId> last_instance_;
  // What an instance is to fill: for a request, or of a prompt for the host.
  std::unordered_map<RequestId, Origin> under_way_;
  std::unordered_map<GroupId, Origin> prompts_under_way_;
  std::vector<std::int64_t> finish_times_;
  std::vector<GroupId> groups_over_;  // of this run
  std::vector<InstanceEvent> batch_;
  timeline::Recorder::CounterId running_counter_ = 0;  // of the job's timeline
  timeline::Recorder::CounterId kv_counter_ = 0;
  Stats stats_;
};

}  // namespace rondo::rollout
