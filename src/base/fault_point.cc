#include "base/fault_point.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>

#include "base/check.h"
#include "base/text_distance.h"

namespace rondo::fault {
namespace {

struct Armed {
  std::string name;
  std::atomic<int> left{0};
};

Armed& armed() {
  static Armed instance;
  return instance;
}

}  // namespace

const std::vector<std::string>& points() {
  static const std::vector<std::string> names = {"step_begin",
                                                 "rollout_response",
                                                 "rollout_done",
                                                 "unit_backward",
                                                 "before_optimizer",
                                                 "after_optimizer",
                                                 "rollouts_written",
                                                 "before_log",
                                                 "log_half_written",
                                                 "after_log",
                                                 "checkpoint_begin",
                                                 "checkpoint_model_written",
                                                 "checkpoint_state_written",
                                                 "checkpoint_before_rename",
                                                 "checkpoint_after_rename",
                                                 "checkpoint_done",
                                                 "checkpoint_before_prune"};
  return names;
}

namespace {

bool is_known(std::string_view name) {
  return std::find(points().begin(), points().end(), name) != points().end();
}

}  // namespace

Result<void> arm(std::string_view specification) {
  const std::size_t colon = specification.find(':');
  const std::string name(specification.substr(0, colon));
  int count = 1;
  if (colon != std::string_view::npos) {
    const std::string_view digits = specification.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc() || end != digits.data() + digits.size() || count < 1)
      return fail(Code::kInvalidArgument, "fault '{}': the count after ':' must be a positive integer",
                  specification);
  }
  if (!is_known(name))
    return fail(Code::kInvalidArgument, "unknown fault point '{}'; the nearest is '{}'", name,
                nearest_name(name, points()));
  armed().name = name;
  armed().left.store(count);
  return {};
}

void reach(std::string_view name) {
  Armed& state = armed();
  if (state.left.load(std::memory_order_relaxed) <= 0) return;
  RONDO_CHECK(is_known(name));  // a place that the list lacks would never be tested
  if (state.name != name) return;
  if (state.left.fetch_sub(1) == 1) std::raise(SIGKILL);
}

}  // namespace rondo::fault
