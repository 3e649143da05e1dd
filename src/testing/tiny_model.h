// Small random models for tests, in memory and as complete model folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "model/weights.h"

namespace rondo::testing {

/// A spec with every dimension small and no two alike: 3 layers, hidden 32, 4 query and 2 KV heads of 8 (V =
/// 2), MLP 48, 97 tokens.
model::ModelSpec tiny_spec(kernels::DType dtype = kernels::DType::kF32);

/// A model with weights uniform in ±scale (norms near 1), the same for the same seed.
std::unique_ptr<model::Model> random_model(const model::ModelSpec& spec, std::uint32_t seed,
                                           float scale = 0.3F);

/// `count` token ids of the vocabulary, the same for the same seed.
std::vector<Token> random_tokens(std::int32_t vocab, std::int64_t count, std::uint32_t seed);

/// Writes a folder that `rondo train` accepts: config.json, model.safetensors with random weights, and a
/// byte-level tokenizer.json without merges (256 byte tokens, then <|im_start|>, <|im_end|> and
/// <|endoftext|>; end token <|im_end|>) with a ChatML template. `folder` is made.
Result<void> write_tiny_model_folder(const std::filesystem::path& folder, std::uint32_t seed);

/// A thread team with a kernel table, for the life of a test.
class Compute final {
 public:
  explicit Compute(int threads = 1, const char* target = "auto");
  const kernels::Context& context() const { return context_; }

 private:
  ThreadPool pool_;
  kernels::Context context_;
};

}  // namespace rondo::testing
