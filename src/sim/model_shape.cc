#include "sim/model_shape.h"

#include <span>
#include <vector>

#include "base/text_distance.h"

namespace rondo::sim {
namespace {

// From the config.json that each model's Hugging Face repository holds.
std::span<const ModelShape> models() {
  static const std::vector<ModelShape> all = {
      // moonshotai/Moonlight-16B-A3B: 15.96 B parameters.
      {.name = "moonlight-16b-a3b",
       .layers = 27,
       .hidden = 2048,
       .heads = 16,
       .head_dim = 128,
       .kv_rank = 512,
       .rope_dim = 64,
       .dense_layers = 1,
       .mlp = 11264,
       .experts = 64,
       .experts_per_token = 6,
       .shared_experts = 2,
       .expert_mlp = 1408,
       .vocabulary = 163840},
      // Qwen/Qwen2-VL-72B-Instruct: the language model is Qwen2-72B; the vision tower has 0.68 B (its report,
      // arXiv 2409.12191, table 1).
      {.name = "qwen2-vl-72b",
       .layers = 80,
       .hidden = 8192,
       .heads = 64,
       .kv_heads = 8,
       .head_dim = 128,
       .dense_layers = 80,
       .mlp = 29568,
       .vocabulary = 152064,
       .other_params = 0.675e9},
      // moonshotai/Kimi-K2-Instruct: 1.03 T parameters, weights in fp8.
      {.name = "kimi-k2",
       .layers = 61,
       .hidden = 7168,
       .heads = 64,
       .head_dim = 128,
       .q_rank = 1536,
       .kv_rank = 512,
       .rope_dim = 64,
       .dense_layers = 1,
       .mlp = 18432,
       .experts = 384,
       .experts_per_token = 8,
       .shared_experts = 1,
       .expert_mlp = 2048,
       .vocabulary = 163840,
       .weight_bytes = 1.0},
      // Qwen/Qwen3-32B: 32.8 B.
      {.name = "qwen3-32b",
       .layers = 64,
       .hidden = 5120,
       .heads = 64,
       .kv_heads = 8,
       .head_dim = 128,
       .dense_layers = 64,
       .mlp = 25600,
       .vocabulary = 151936},
      // Qwen/Qwen3-235B-A22B: 235 B, 22 B active.
      {.name = "qwen3-235b-a22b",
       .layers = 94,
       .hidden = 4096,
       .heads = 64,
       .kv_heads = 4,
       .head_dim = 128,
       .experts = 128,
       .experts_per_token = 8,
       .expert_mlp = 1536,
       .vocabulary = 151936},
      // HuggingFaceTB/SmolLM2-135M-Instruct: 135 M.
      {.name = "smollm2-135m",
       .layers = 30,
       .hidden = 576,
       .heads = 9,
       .kv_heads = 3,
       .head_dim = 64,
       .dense_layers = 30,
       .mlp = 1536,
       .vocabulary = 49152,
       .tied = true},
  };
  return all;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelShape& model : models()) names.push_back(model.name);
  return names;
}

}  // namespace

double ModelShape::kv_bytes_per_token() const {
  const double values = latent() ? kv_rank + rope_dim : 2.0 * kv_heads * head_dim;
  return layers * values * kv_value_bytes;
}

double ModelShape::expert_params() const {
  return 3.0 * hidden * expert_mlp;
}

double ModelShape::routed_params() const {
  return static_cast<double>(expert_layers()) * experts * expert_params();
}

double ModelShape::dense_params() const {
  const double width = static_cast<double>(heads) * head_dim;
  double attention = 0.0;
  if (latent()) {
    const double query = static_cast<double>(heads) * (head_dim + rope_dim);
    const double project = q_rank > 0 ? q_rank * (hidden + query) : hidden * query;
    attention =
        project + static_cast<double>(hidden) * (kv_rank + rope_dim) + kv_rank * 2.0 * width + width * hidden;
  } else {
    attention = 2.0 * hidden * width + 2.0 * hidden * kv_heads * head_dim;
  }
  return layers * attention + 3.0 * dense_layers * hidden * mlp +
         static_cast<double>(expert_layers()) * shared_experts * expert_params() +
         static_cast<double>(vocabulary) * hidden;
}

double ModelShape::active_params() const {
  return dense_params() + static_cast<double>(expert_layers()) * experts_per_token * expert_params();
}

double ModelShape::total_params() const {
  const double embedding = tied ? 0.0 : static_cast<double>(vocabulary) * hidden;
  return dense_params() + routed_params() + embedding + other_params;
}

// Latent attention decodes on the latent itself: keys are kv_rank + rope_dim wide, values kv_rank.
double ModelShape::attention_flops() const {
  const double width = latent() ? 2.0 * kv_rank + rope_dim : 2.0 * head_dim;
  return 2.0 * layers * heads * width;
}

Result<ModelShape> find_model(std::string_view name) {
  for (const ModelShape& model : models()) {
    if (model.name == name) return model;
  }
  return fail(Code::kInvalidArgument, "model.preset: unknown model '{}'; the nearest is '{}'", name,
              nearest_name(name, model_names()));
}

}  // namespace rondo::sim
