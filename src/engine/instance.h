// Instance: an engine with a thread of its own, as the dispatcher's client.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/response_store.h"
#include "rollout/engine_client.h"
#include "rollout/event_queue.h"

namespace rondo::engine {

/// Runs an Engine on its own thread: takes orders from an inbox between steps, reports to an event queue.
///
/// Does not decide what runs. Orders may come from any one thread; the engine belongs to the instance's
/// thread while there is work. What it generates goes to the response store at each chunk's end.
class Instance final : public rollout::EngineClient {
 public:
  struct Deps {
    const model::Model* model = nullptr;
    const text::Tokenizer* tokenizer = nullptr;
    kernels::Context context;  // its pool is used by this instance alone while it works
    ResponseStore* responses = nullptr;
    rollout::EventQueue* events = nullptr;
    const Clock* clock = nullptr;
    std::unique_ptr<Drafting> drafting = nullptr;  // null: no speculation
    /// Called before each step; an error is a failure of the instance. For tests and fault injection.
    std::function<Result<void>(std::int64_t step)> before_step = {};
  };

  static Result<std::unique_ptr<Instance>> create(InstanceId id, const Engine::Config& config, Deps deps);
  ~Instance() override;

  rollout::InstanceSpec spec() const override { return spec_; }
  void run_chunk(rollout::ChunkOrder order) override { send(std::move(order)); }
  void hand_over(RequestId request, std::shared_ptr<rollout::Parcel> parcel) override {
    send(HandOver{request, std::move(parcel)});
  }
  void group_order(rollout::GroupOrder order) override { send(std::move(order)); }
  void drop_kv() override { send(DropKv{}); }
  void settle() override;
  std::int64_t heartbeat() const override { return heartbeat_.load(std::memory_order_relaxed); }
  void abandon() override;

  /// The engine itself, for measurements. Only while nothing is ordered.
  Engine& engine() { return *engine_; }
  /// The engine's counters as of its last step. Any thread.
  batch::Planner::Stats stats() const;
  /// The same of its drafts; zeros without speculation. Any thread.
  Drafting::Stats draft_stats() const;

 private:
  struct HandOver {
    RequestId request;
    std::shared_ptr<rollout::Parcel> parcel;
  };
  struct DropKv {};
  using Command = std::variant<rollout::ChunkOrder, HandOver, rollout::GroupOrder, DropKv>;

  Instance(const rollout::InstanceSpec& spec, std::unique_ptr<Engine> engine, Deps deps);
  void send(Command command);
  void loop();
  bool is_abandoned() const;
  bool take_commands();
  Result<void> work();
  void carry_out(Command& command);
  void start(const rollout::ChunkOrder& order);
  bool must_wait(const rollout::ChunkOrder& order, std::span<const rollout::ChunkOrder> ahead) const;
  void start_arrived();
  void report_failure(const Status& status);
  void learn();
  void hand_over_now(const HandOver& order);
  void serve_group(const rollout::GroupOrder& order);
  void report();
  void report_end(rollout::InstanceEvent::Kind kind, RequestId request, std::int32_t total_tokens);

  rollout::InstanceSpec spec_;
  std::unique_ptr<Engine> engine_;
  Deps deps_;

  std::mutex inbox_mutex_;
  std::condition_variable inbox_filled_;
  std::condition_variable settled_;
  std::vector<Command> inbox_;
  bool stopping_ = false;
  bool resting_ = false;  // nothing runs, and nothing will before the next order
  bool failed_ = false;

  mutable std::mutex publish_mutex_;  // held while responses and events go out
  bool abandoned_ = false;
  batch::Planner::Stats published_stats_;
  Drafting::Stats published_draft_stats_;

  std::atomic<std::int64_t> heartbeat_ = 0;
  // Of the instance's thread.
  std::vector<Command> commands_;
  std::vector<rollout::ChunkOrder> awaiting_kv_;
  std::unordered_map<RequestId, std::int64_t> began_ns_;  // of the chunks that are running
  std::vector<Response> finished_;
  std::vector<rollout::InstanceEvent> events_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rondo::engine
