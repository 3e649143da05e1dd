#include "rl/session.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "model/load.h"

namespace rondo::rl {
namespace {

namespace fs = std::filesystem;

// Whether the KV pool holds the longest sequence that the config allows.
Result<void> check_kv_pool(const Config& config, const engine::Engine& engine) {
  const std::int64_t needed = kv::blocks_for(config.max_sequence());
  if (needed <= engine.num_blocks()) return {};
  const std::size_t block = engine.kv_bytes() / static_cast<std::size_t>(engine.num_blocks());
  return fail(Code::kInvalidArgument,
              "engine.kv_memory = {} holds {} tokens, but one sequence may have {} (data.max_prompt_length + "
              "data.max_response_length); set engine.kv_memory to at least {} or lower the lengths",
              config::to_string(config.engine.kv_memory),
              std::int64_t{engine.num_blocks()} * kv::kBlockTokens, config.max_sequence(),
              config::to_string({needed * static_cast<std::int64_t>(block)}));
}

Result<void> check_lengths(const Config& config, const hf::ModelConfig& model) {
  if (config.max_sequence() <= model.max_position_embeddings) return {};
  return fail(Code::kInvalidArgument,
              "data.max_prompt_length + data.max_response_length = {} exceeds the model's "
              "max_position_embeddings = {}",
              config.max_sequence(), model.max_position_embeddings);
}

}  // namespace

int resolve_threads(int threads) {
  if (threads > 0) return threads;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Result<std::unique_ptr<Session>> Session::open(const Config& config, const std::atomic<bool>* interrupted) {
  auto s = std::make_unique<Session>();
  s->config = config;
  const fs::path folder = config.model.path;
  RONDO_ASSIGN(s->model_config, hf::ModelConfig::read(folder));
  RONDO_TRY(check_lengths(config, s->model_config));
  RONDO_ASSIGN(s->tokenizer, text::Tokenizer::from_file(folder / "tokenizer.json"));
  if (s->tokenizer->vocab_size() > s->model_config.vocab_size)
    return fail(Code::kInvalidArgument,
                "{}: tokenizer.json has {} tokens, config.json only {}; they are of different models",
                folder.string(), s->tokenizer->vocab_size(), s->model_config.vocab_size);
  RONDO_ASSIGN(s->weights, hf::ModelWeightsReader::open(folder));
  s->pool = std::make_unique<ThreadPool>(resolve_threads(config.trainer.threads));
  RONDO_ASSIGN_CTX(s->context.table, kernels::find_target(config.trainer.kernel_target),
                   "trainer.kernel_target");
  s->context.pool = s->pool.get();
  RONDO_ASSIGN(const model::ModelSpec spec, model::make_spec(s->model_config, config.model.dtype, 0));
  RONDO_ASSIGN_CTX(s->model, model::load_model(*s->weights, spec), folder.string());
  RONDO_ASSIGN(s->inference,
               InferencePool::create(config, *s->model, *s->tokenizer, s->context, interrupted));
  RONDO_TRY(check_kv_pool(config, s->inference->engine()));
  auto stop = std::make_shared<engine::StopRules>();
  if (!config.rollout.ignore_eos) stop->tokens = s->model_config.eos_token_ids;
  stop->strings = config.rollout.stop;
  s->stop = std::move(stop);
  return s;
}

}  // namespace rondo::rl
