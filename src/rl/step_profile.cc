#include "rl/step_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <thread>
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
  Profiler(engine::Engine& engine, std::int32_t vocab, std::int32_t max_new,
           const std::atomic<bool>* interrupted)
      : engine_(engine), vocab_(vocab), max_new_(max_new), interrupted_(interrupted) {}

  // The whole grid, by batch, then gamma, then context. The engine is left idle, interrupted or not.
  Result<std::vector<double>> measure(const rollout::StepCost::Axes& axes) {
    const std::size_t num_contexts = axes.contexts.size(), num_gammas = axes.gammas.size();
    std::vector<double> grid(axes.batches.size() * num_gammas * num_contexts);
    for (std::size_t b = 0; b < axes.batches.size(); ++b) {
      for (std::size_t c = 0; c < num_contexts; ++c) {
        const int batch = static_cast<int>(axes.batches[b]), context = static_cast<int>(axes.contexts[c]);
        const auto seconds = measure(batch, context, axes.gammas);
        for (int i = 0; i < batch; ++i) engine_.cancel(RequestId(i));
        if (!seconds) return tl::unexpected(seconds.error());
        for (std::size_t g = 0; g < num_gammas; ++g)
          grid[(b * num_gammas + g) * num_contexts + c] = (*seconds)[g];
      }
    }
    return grid;
  }

  // Drafts that are all but never right.
  void draft(std::span<const engine::DraftContext> contexts, batch::Drafts& drafts) {
    for (const engine::DraftContext& context : contexts) {
      const std::vector<Token> tokens = random_tokens(std::min(gamma_, context.max_tokens));
      if (!tokens.empty()) drafts.add_chain(context.slot, tokens);
    }
  }

 private:
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
    return seconds;
  }

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
    if (interrupted_ != nullptr && *interrupted_)
      return fail(Code::kCancelled, "interrupted while the time of steps was measured; nothing was kept");
    std::vector<engine::Response> finished;
    return engine_.step(finished);
  }

  engine::Engine& engine_;
  std::int32_t vocab_;
  std::int32_t max_new_;
  const std::atomic<bool>* interrupted_;
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

// The processor's name and how many of its cores there are; where the system does not tell, all are alike.
std::string processor() {
  std::string name = "unknown";
  const Result<std::string> info = read_file("/proc/cpuinfo");
  constexpr std::string_view kField = "model name";
  const std::size_t field = info ? info->find(kField) : std::string::npos;
  if (field != std::string::npos) name = info->substr(field, info->find('\n', field) - field);
  return fmt::format("{}, {} cores", name, std::thread::hardware_concurrency());
}

// Which build of the program runs: other kernels take other times.
std::string program() {
  static const std::string sum = [] {
    const Result<std::string> bytes = read_file("/proc/self/exe");
    return bytes ? fmt::format("{:016x}", checksum(std::as_bytes(std::span(*bytes)))) : "unknown";
  }();
  return sum;
}

}  // namespace

StepProfileRange step_profile_range(const Config& config, const model::ModelSpec& spec,
                                    std::int32_t num_blocks) {
  constexpr std::int64_t kLongestContext = 4096;
  // All share one prompt, so a pool holds a batch if it holds the prompt and three blocks for each.
  const std::int64_t room = std::int64_t{num_blocks} * kv::kBlockTokens / 2 - kNewTokens;
  const std::int64_t longest =
      std::min({config.max_sequence(), spec.max_positions - std::int64_t{kNewTokens}, room, kLongestContext});
  const std::int64_t context = std::max<std::int64_t>(1, longest);
  const std::int64_t spare = num_blocks - kv::blocks_for(context);
  const std::int64_t running = std::clamp<std::int64_t>(spare / 3, 1, config.engine.batch.max_running);
  return {.max_running = static_cast<std::int32_t>(running),
          .max_context = static_cast<std::int32_t>(context),
          .max_gamma = config.rollout.spec.length.max_gamma};
}

Result<rollout::StepCost> measure_step_cost(engine::Engine& engine, std::int32_t vocab,
                                            const StepProfileRange& range,
                                            const std::atomic<bool>* interrupted) {
  rollout::StepCost::Axes axes{.batches = growing(1, 4, range.max_running),
                               .gammas = growing(1, 3, range.max_gamma),
                               .contexts = growing(std::min(64, range.max_context), 8, range.max_context)};
  axes.gammas.insert(axes.gammas.begin(), 0.0);
  for (auto* axis : {&axes.batches, &axes.gammas, &axes.contexts})
    axis->erase(std::unique(axis->begin(), axis->end()), axis->end());
  Profiler profiler(engine, vocab, kNewTokens, interrupted);
  engine.set_drafter([&profiler](auto contexts, batch::Drafts& drafts) { profiler.draft(contexts, drafts); });
  auto grid = profiler.measure(axes);
  engine.set_drafter({});
  engine.drop_kv();
  if (!grid) return tl::unexpected(std::move(grid).error());
  return rollout::StepCost::create(std::move(axes), *std::move(grid));
}

std::filesystem::path step_profile_file(const StepProfileKey& key, std::int32_t num_blocks) {
  const model::ModelSpec& spec = key.model.spec();
  const StepProfileRange range = step_profile_range(key.config, spec, num_blocks);
  const std::string text = fmt::format(
      "v2 {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", spec.layers, spec.hidden, spec.heads,
      spec.kv_heads, spec.head_dim, spec.intermediate, spec.vocab, kernels::dtype_name(spec.dtype),
      key.target, key.threads, range.max_running, range.max_context, range.max_gamma,
      key.config.engine.batch.max_batch_tokens, processor(), program());
  const auto sum = checksum(std::as_bytes(std::span(text)));
  return std::filesystem::path(key.config.rollout.spec.profile_folder) /
         fmt::format("step_cost_{:016x}.json", sum);
}

Result<rollout::StepCost> load_or_measure_step_cost(const StepProfileKey& key, engine::Engine& engine,
                                                    const std::atomic<bool>* interrupted) {
  if (!key.config.rollout.spec.profile_folder.empty()) {
    const std::filesystem::path file = step_profile_file(key, engine.num_blocks());
    if (const auto bytes = read_file(file)) {
      if (auto cost = rollout::parse_step_cost(*bytes)) return cost;
      log::warn("{} is no step profile; measuring anew", file.string());
    }
  }
  log::info("measuring the time of decoding steps, once for this model and machine");
  return renew_step_cost(key, engine, interrupted);
}

Result<rollout::StepCost> renew_step_cost(const StepProfileKey& key, engine::Engine& engine,
                                          const std::atomic<bool>* interrupted) {
  const model::ModelSpec& spec = key.model.spec();
  const StepProfileRange range = step_profile_range(key.config, spec, engine.num_blocks());
  RONDO_ASSIGN(rollout::StepCost cost, measure_step_cost(engine, spec.vocab, range, interrupted));
  const std::string& folder = key.config.rollout.spec.profile_folder;
  if (folder.empty()) return cost;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::filesystem::path file = step_profile_file(key, engine.num_blocks());
  if (const auto written = replace_file(file, rollout::step_cost_json(cost)); !written)
    log::warn("the step profile is not kept: {}", written.error().message());
  return cost;
}

}  // namespace rondo::rl
