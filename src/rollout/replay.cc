// replay(): a log's inputs to fresh cores, each call checked first, because a log is outside input.
#include <optional>
#include <string>
#include <utility>

#include "rollout/input_log.h"

namespace rondo::rollout {
namespace {

using Outcome = std::optional<std::string>;  // what is wrong, if anything

class Replayer final {
 public:
  explicit Replayer(const ReplayCores& cores) : scheduler_(*cores.scheduler), drafts_(cores.drafts) {}

  Outcome operator()(const InstanceAdded& x) { return refused(scheduler_.add_instance(x.spec)); }
  Outcome operator()(const GroupAdded& x) { return refused(scheduler_.add_group(x.spec)); }
  Outcome operator()(const InstanceFailed& x) {
    if (!scheduler_.ledger().has_instance(x.instance)) return "there is no such instance";
    scheduler_.instance_failed(x.instance);
    return std::nullopt;
  }
  Outcome operator()(const GoalSet& x) {
    scheduler_.set_goal(x.num_groups);
    return std::nullopt;
  }
  Outcome operator()(const Assigned& x) {
    const auto next = scheduler_.plan();
    if (!next) return fmt::format("now there is no assignment: {}", idle_name(next.error()));
    if (!(*next == x.assignment)) {
      return fmt::format("now request {} goes to instance {}", next->request, next->placement.instance);
    }
    scheduler_.commit(*next);
    return std::nullopt;
  }
  Outcome operator()(const ChunkDone& x) {
    const Request* request = in_flight(x.request);
    const bool goes_on = request != nullptr && x.new_tokens >= 1 && x.new_tokens <= request->chunk &&
                         request->generated + x.new_tokens < request->max_new_tokens;
    if (!goes_on) return "no such chunk can end now";
    scheduler_.chunk_done(x.request, x.new_tokens);
    return std::nullopt;
  }
  Outcome operator()(const RequestFinished& x) {
    const Request* request = in_flight(x.request);
    const bool ends = request != nullptr && x.total_tokens > request->generated &&
                      x.total_tokens - request->generated <= request->chunk;
    if (!ends) return "no such response can end now";
    scheduler_.finished(x.request, x.total_tokens);
    return std::nullopt;
  }
  Outcome operator()(const Prefetched& x) {
    if (x.count < 0) return "a negative count";
    const auto next = scheduler_.plan_prefetch(x.count);
    if (!next || !(*next == x.prefetch)) return "now other KV is fetched, or none";
    scheduler_.commit(*next);
    return std::nullopt;
  }
  Outcome operator()(const VersionChanged&) {
    if (scheduler_.num_in_flight() > 0) return "requests are in flight";
    scheduler_.new_policy_version();
    return std::nullopt;
  }
  Outcome operator()(const PriorSet& x) {
    if (scheduler_.requests().num_groups() > 0) return "there are groups already";
    if (const Result<void> valid = check(x.prior); !valid) return valid.error().message();
    scheduler_.set_prior(x.prior);
    return std::nullopt;
  }
  Outcome operator()(const Abandoned&) {
    scheduler_.abandon();
    return std::nullopt;
  }
  Outcome operator()(const DraftPlanned& x) {
    if (drafts_ == nullptr) return "the replay has no draft planner";
    for (const std::int32_t running : x.load.running) {
      if (running < 0 || running > kMaxRunning) return "the load is none";
    }
    const DraftLengths lengths = drafts_->plan(x.load);
    if (!(lengths == x.lengths)) {
      return fmt::format("now probes draft {}, others {}", lengths.probe, lengths.other);
    }
    drafts_->commit(x.load, lengths);
    return std::nullopt;
  }
  Outcome operator()(const DraftSeen& x) {
    if (drafts_ == nullptr) return "the replay has no draft planner";
    if (x.accepted < 0 || x.accepted > x.drafted) return "more accepted than drafted";
    drafts_->observe(x.draft_class, x.drafted, x.accepted);
    return std::nullopt;
  }

 private:
  static constexpr std::int32_t kMaxRunning = 1 << 24;

  static Outcome refused(const Result<void>& result) {
    return result ? std::nullopt : Outcome(result.error().message());
  }
  const Request* in_flight(RequestId id) const {
    const auto slot = scheduler_.requests().find(id);
    if (!slot || scheduler_.requests()[*slot].state != RequestState::kInFlight) return nullptr;
    return &scheduler_.requests()[*slot];
  }

  Scheduler& scheduler_;
  DraftLengthPlanner* drafts_;
};

}  // namespace

Result<void> replay(std::span<const TimedInput> inputs, const ReplayCores& cores) {
  Replayer replayer(cores);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (const Outcome wrong = std::visit(replayer, inputs[i].input)) {
      return fail(Code::kInvalidArgument, "replay: input {} of {} departs from the log: {}", i + 1,
                  inputs.size(), *wrong);
    }
  }
  return {};
}

}  // namespace rondo::rollout
