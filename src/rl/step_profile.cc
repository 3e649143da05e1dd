#include "rl/step_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"

namespace rondo::rl {
namespace {

constexpr int kRepeats = 3;
// Tokens of a response while it is measured: those of all steps, and some for drafts that happen to be right.
constexpr std::int32_t kNewTokens = 64;

class Profiler final {
 public:
  Profiler(engine::Engine& engine, std::int32_t vocab, std::int32_t max_new)
      : engine_(engine), vocab_(vocab), max_new_(max_new) {}

  // Seconds of a step of `batch` responses to a prompt of `context` tokens, for each of `gammas`.
  Result<std::vector<double>> measure(int batch, int context, const std::vector<double>& gammas) {
    RONDO_TRY(submit(batch, context));
    while (engine_.stats().computed_tokens < first_rows_ + context + batch - 1) RONDO_TRY(step());
    std::vector<double> seconds;
    for (const double gamma : gammas) {
      gamma_ = static_cast<std::int32_t>(gamma);
      std::vector<double> times;
      for (int i = 0; i <= kRepeats; ++i) {
        const double begin = clock_.now_s();
        RONDO_TRY(step());
        if (i > 0) times.push_back(clock_.now_s() - begin);
      }
      seconds.push_back(*std::ranges::min_element(times));
    }
    gamma_ = 0;
    for (int i = 0; i < batch; ++i) engine_.cancel(RequestId(i));
    return seconds;
  }

  // Drafts that are all but never right.
  void draft(std::span<const engine::DraftContext> contexts, batch::Drafts& drafts) {
    for (const engine::DraftContext& context : contexts) {
      const std::vector<Token> tokens = random_tokens(std::min(gamma_, context.max_tokens));
      if (!tokens.empty()) drafts.add_chain(context.slot, tokens);
    }
  }

 private:
  std::vector<Token> random_tokens(int count) {
    std::vector<Token> tokens;
    tokens.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
      tokens.push_back(
          static_cast<Token>(rng_.below({.position = next_++}, static_cast<std::uint64_t>(vocab_))));
    return tokens;
  }

  Result<void> submit(int batch, int context) {
    first_rows_ = engine_.stats().computed_tokens;
    const auto prompt = std::make_shared<const std::vector<Token>>(random_tokens(context));
    for (int i = 0; i < batch; ++i) {
      engine::Request request;
      request.id = RequestId(i);
      request.group = GroupId(0);
      request.prompt = prompt;
      request.max_new_tokens = max_new_;
      request.counter.sample = static_cast<std::uint32_t>(i);
      RONDO_TRY(engine_.submit(std::move(request)));
    }
    return {};
  }

  Result<void> step() {
    std::vector<engine::Response> finished;
    return engine_.step(finished);
  }

  engine::Engine& engine_;
  std::int32_t vocab_;
  std::int32_t max_new_;
  SteadyClock clock_;
  Rng rng_{1, RngPurpose::kInit};
  std::uint32_t next_ = 0;
  std::int32_t gamma_ = 0;
  std::int64_t first_rows_ = 0;
};

// first, first * factor, … below last, and last.
std::vector<double> growing(std::int64_t first, std::int64_t factor, std::int64_t last) {
  std::vector<double> values;
  for (std::int64_t value = first; value < last; value *= factor)
    values.push_back(static_cast<double>(value));
  values.push_back(static_cast<double>(last));
  return values;
}

}  // namespace

Result<rollout::StepCost> measure_step_cost(engine::Engine& engine, std::int32_t vocab, int max_gamma,
                                            std::int32_t max_running, std::int32_t max_context) {
  // All share one prompt, so a pool holds a batch if it holds the prompt and three blocks for each.
  const std::int64_t room = std::int64_t{engine.num_blocks()} * kv::kBlockTokens / 2 - kNewTokens;
  max_context = static_cast<std::int32_t>(std::clamp<std::int64_t>(room, 1, max_context));
  const std::int64_t spare = engine.num_blocks() - kv::blocks_for(max_context);
  const auto largest = std::clamp<std::int64_t>(spare / 3, 1, max_running);
  rollout::StepCost::Axes axes{.batches = growing(1, 4, largest),
                               .gammas = growing(1, 3, max_gamma),
                               .contexts = growing(std::min(64, max_context), 8, max_context)};
  axes.gammas.insert(axes.gammas.begin(), 0.0);
  for (auto* axis : {&axes.batches, &axes.gammas, &axes.contexts})
    axis->erase(std::unique(axis->begin(), axis->end()), axis->end());
  Profiler profiler(engine, vocab, kNewTokens);
  engine.set_drafter([&profiler](auto contexts, batch::Drafts& drafts) { profiler.draft(contexts, drafts); });
  const std::size_t num_contexts = axes.contexts.size(), num_gammas = axes.gammas.size();
  std::vector<double> grid(axes.batches.size() * num_gammas * num_contexts);
  for (std::size_t b = 0; b < axes.batches.size(); ++b) {
    for (std::size_t c = 0; c < num_contexts; ++c) {
      auto seconds = profiler.measure(static_cast<int>(axes.batches[b]), static_cast<int>(axes.contexts[c]),
                                      axes.gammas);
      if (!seconds) {
        engine.set_drafter({});
        return tl::unexpected(std::move(seconds).error());
      }
      for (std::size_t g = 0; g < num_gammas; ++g)
        grid[(b * num_gammas + g) * num_contexts + c] = (*seconds)[g];
    }
  }
  engine.set_drafter({});
  engine.drop_kv();
  return rollout::StepCost::create(std::move(axes), std::move(grid));
}

std::filesystem::path step_profile_file(const Config& config, const model::ModelSpec& spec,
                                        const std::string& target, int threads) {
  const std::string key = fmt::format(
      "v1 {} {} {} {} {} {} {} {} {} {} {} {} {} {}", spec.layers, spec.hidden, spec.heads, spec.kv_heads,
      spec.head_dim, spec.intermediate, spec.vocab, kernels::dtype_name(spec.dtype), target, threads,
      config.engine.batch.max_running, config.engine.batch.max_batch_tokens,
      config.rollout.spec.length.max_gamma, config.max_sequence());
  const auto sum = checksum(std::as_bytes(std::span(key)));
  return std::filesystem::path(config.rollout.spec.profile_folder) /
         fmt::format("step_cost_{:016x}.json", sum);
}

Result<rollout::StepCost> load_or_measure_step_cost(const Config& config, const model::Model& model,
                                                    const std::string& target, int threads,
                                                    engine::Engine& engine) {
  const std::filesystem::path file = step_profile_file(config, model.spec(), target, threads);
  const bool kept = !config.rollout.spec.profile_folder.empty();
  if (kept) {
    if (const auto bytes = read_file(file)) {
      if (auto cost = rollout::parse_step_cost(*bytes)) return cost;
      log::warn("{} is no step profile; measuring anew", file.string());
    }
  }
  log::info("measuring the time of decoding steps, once for this model and machine");
  const std::int64_t longest =
      std::min<std::int64_t>(config.max_sequence(), model.spec().max_positions - kNewTokens);
  const auto context = static_cast<std::int32_t>(std::clamp<std::int64_t>(longest, 1, 4096));
  RONDO_ASSIGN(rollout::StepCost cost,
               measure_step_cost(engine, model.spec().vocab, config.rollout.spec.length.max_gamma,
                                 config.engine.batch.max_running, context));
  if (!kept) return cost;
  std::error_code ignored;
  std::filesystem::create_directories(config.rollout.spec.profile_folder, ignored);
  if (const auto written = replace_file(file, rollout::step_cost_json(cost)); !written)
    log::warn("the step profile is not kept: {}", written.error().message());
  return cost;
}

}  // namespace rondo::rl
