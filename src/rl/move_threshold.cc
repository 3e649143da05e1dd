#include "rl/move_threshold.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace rondo::rl {
namespace {

constexpr int kRounds = 3;  // the first one warms up
const RequestId kRequest(0);
const GroupId kGroup(0);

// A prompt of one block, computed, moved out and in again.
class KvTrial final {
 public:
  KvTrial(engine::Engine& engine, const model::ModelSpec& spec) : engine_(engine) {
    const std::int64_t room =
        std::min(std::int64_t{engine.num_blocks()} * kv::kBlockTokens, std::int64_t{spec.max_positions}) -
        kNewTokens - 1;
    num_ = static_cast<std::int32_t>(std::clamp<std::int64_t>(room, 1, kv::kBlockTokens));
    const Rng rng(0, RngPurpose::kInit);
    std::vector<Token> tokens;
    for (int i = 0; i <= num_; ++i) {
      const auto position = static_cast<std::uint32_t>(i);
      tokens.push_back(
          static_cast<Token>(rng.below({.position = position}, static_cast<std::uint64_t>(spec.vocab))));
    }
    prompt_ = std::make_shared<const std::vector<Token>>(std::move(tokens));
  }

  // The least times of all rounds, each by itself: a disturbance of one must not look like a gain of another.
  Result<KvCosts> run() {
    for (int round = 0; round < kRounds; ++round) RONDO_TRY(run_round());
    return KvCosts{.compute_s = std::max(0.0, prefill_s_ - step_s_) / num_,
                   .move_s = out_s_ + std::max(0.0, restored_s_ - step_s_)};
  }

 private:
  static constexpr std::int32_t kNewTokens = 4;
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  Result<void> run_round() {
    RONDO_ASSIGN(const double prefill_s, first_chunk(nullptr));
    double begin = clock_.now_s();
    engine_.resume(kRequest, 1);
    RONDO_TRY(steps());
    step_s_ = std::min(step_s_, clock_.now_s() - begin);
    begin = clock_.now_s();
    const auto image = engine_.export_prompt(kGroup);
    out_s_ = std::min(out_s_, clock_.now_s() - begin);
    engine_.cancel(kRequest);
    RONDO_ASSIGN(const double restored_s, first_chunk(image));
    engine_.cancel(kRequest);
    prefill_s_ = std::min(prefill_s_, prefill_s);
    restored_s_ = std::min(restored_s_, restored_s);
    return {};
  }

  // Seconds from the request's arrival to its first token.
  Result<double> first_chunk(std::shared_ptr<const kv::Image> stored) {
    engine::Request request;
    request.id = kRequest;
    request.group = kGroup;
    request.prompt = prompt_;
    request.max_new_tokens = kNewTokens;
    request.chunk_tokens = 1;
    const double begin = clock_.now_s();
    if (stored != nullptr) request.stored.push_back(std::move(stored));
    RONDO_TRY(engine_.submit(std::move(request)));
    RONDO_TRY(steps());
    return clock_.now_s() - begin;
  }

  Result<void> steps() {
    std::vector<engine::Response> finished;
    while (!engine_.idle()) RONDO_TRY(engine_.step(finished));
    return {};
  }

  engine::Engine& engine_;
  SteadyClock clock_;
  std::int32_t num_ = 0;  // positions beside the last, which is always computed
  std::shared_ptr<const std::vector<Token>> prompt_;
  double prefill_s_ = kInfinity;
  double step_s_ = kInfinity;  // of one token behind the prompt
  double out_s_ = kInfinity;
  double restored_s_ = kInfinity;
};

}  // namespace

Result<KvCosts> measure_kv_costs(engine::Engine& engine, const model::ModelSpec& spec) {
  KvTrial trial(engine, spec);
  Result<KvCosts> costs = trial.run();
  engine.cancel(kRequest);
  engine.drop_kv();
  return costs;
}

std::int32_t move_threshold(const KvCosts& costs) {
  if (costs.move_s >= costs.compute_s * kv::kBlockTokens) return kNeverMove;
  return static_cast<std::int32_t>(costs.move_s / costs.compute_s);
}

}  // namespace rondo::rl
