// Session: a loaded model with its tokenizer, threads and inference instances: what every command that runs a
// model starts from.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "hf/model_config.h"
#include "hf/model_weights.h"
#include "kernels/ops.h"
#include "model/weights.h"
#include "rl/config.h"
#include "rl/inference_pool.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace rondo::rl {

/// Owns all parts and keeps them where they are. One owner thread.
struct Session {
  Config config;
  hf::ModelConfig model_config;
  std::unique_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<const hf::ModelWeightsReader>
      weights;  // the folder's tensors, memory-mapped; may be let go
  std::unique_ptr<ThreadPool> pool;
  kernels::Context context{};
  std::unique_ptr<model::Model> model;
  std::unique_ptr<InferencePool> inference;
  std::shared_ptr<const engine::StopRules> stop;

  /// Loads everything that config.model and config.engine name. The error says which file or field is at
  /// fault; kCancelled if `interrupted` (may be null) becomes true while the time of steps is measured.
  static Result<std::unique_ptr<Session>> open(const Config& config,
                                               const std::atomic<bool>* interrupted = nullptr);
};

/// Threads for trainer.threads: 0 is one per core this process may use.
int resolve_threads(int threads);

}  // namespace rondo::rl
