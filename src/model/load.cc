#include "model/load.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace rondo::model {
namespace {

// Rows read at a time, so that loading needs no fp32 copy of the model.
constexpr std::int64_t kRowsAtOnce = 1024;

// A tensor that transformers writes beside the weights and that carries no information.
bool ignorable(const std::string& name, const ModelSpec& spec) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  return spec.tied_embeddings && name == "lm_head.weight";
}

Result<void> check_names(const hf::ModelWeightsReader& reader, const ModelSpec& spec,
                         const ParamLayout& layout) {
  std::unordered_set<std::string> known;
  for (const ParamInfo& info : layout.params())
    for (const ParamSlice& slice : info.slices) known.insert(slice.name);
  for (const std::string& name : reader.names())
    if (!known.contains(name) && !ignorable(name, spec))
      return fail(Code::kUnsupported,
                  "the model folder has a tensor '{}' that this architecture does not use; the model would "
                  "not run as "
                  "it was trained",
                  name);
  return {};
}

Result<hf::TensorView> find_checked(const hf::ModelWeightsReader& reader, const ParamInfo& info,
                                    const ParamSlice& slice) {
  RONDO_ASSIGN(const hf::TensorView view, reader.find(slice.name));
  const std::vector<std::int64_t> expected = info.is_vector
                                                 ? std::vector<std::int64_t>{info.cols}
                                                 : std::vector<std::int64_t>{slice.rows, info.cols};
  if (!std::equal(view.shape.begin(), view.shape.end(), expected.begin(), expected.end()))
    return fail(Code::kInvalidArgument, "tensor '{}' has shape [{}], but config.json asks for [{}]",
                slice.name, fmt::join(view.shape, ", "), fmt::join(expected, ", "));
  return view;
}

Result<void> load_slice(const hf::ModelWeightsReader& reader, const ParamLayout& layout, ParamIndex i,
                        const ParamSlice& slice, Weights& weights) {
  const ParamInfo& info = layout[i];
  RONDO_ASSIGN(const hf::TensorView view, find_checked(reader, info, slice));
  std::vector<float> rows(static_cast<std::size_t>(std::min(kRowsAtOnce, slice.rows) * info.cols));
  for (std::int64_t r = 0; r < slice.rows; r += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, slice.rows - r);
    hf::widen(view, r * info.cols, std::span(rows).first(static_cast<std::size_t>(count * info.cols)));
    RONDO_TRY(weights.store(i, slice.first_row + r, count, rows.data()));
  }
  return {};
}

}  // namespace

kernels::DType storage_dtype(hf::DType dtype) {
  switch (dtype) {
    case hf::DType::kBf16:
      return kernels::DType::kBF16;
    case hf::DType::kFp16:
      return kernels::DType::kF16;
    case hf::DType::kFp32:
      break;
  }
  return kernels::DType::kF32;
}

hf::DType file_dtype(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kBF16:
      return hf::DType::kBf16;
    case kernels::DType::kF16:
      return hf::DType::kFp16;
    case kernels::DType::kF32:
      break;
  }
  return hf::DType::kFp32;
}

Result<ModelSpec> make_spec(const hf::ModelConfig& config, kernels::DType dtype, std::int64_t max_positions) {
  if (config.head_dim > kernels::kMaxHeadDim)
    return fail(Code::kUnsupported, "config.json: head_dim is {}, the kernels handle up to {}",
                config.head_dim, kernels::kMaxHeadDim);
  const std::int64_t positions = max_positions > 0 ? std::min(max_positions, config.max_position_embeddings)
                                                   : config.max_position_embeddings;
  ModelSpec spec;
  spec.hidden = static_cast<std::int32_t>(config.hidden_size);
  spec.intermediate = static_cast<std::int32_t>(config.intermediate_size);
  spec.layers = static_cast<std::int32_t>(config.num_hidden_layers);
  spec.heads = static_cast<std::int32_t>(config.num_attention_heads);
  spec.kv_heads = static_cast<std::int32_t>(config.num_key_value_heads);
  spec.head_dim = static_cast<std::int32_t>(config.head_dim);
  spec.vocab = static_cast<std::int32_t>(config.vocab_size);
  spec.max_positions = static_cast<std::int32_t>(positions);
  spec.rms_norm_eps = static_cast<float>(config.rms_norm_eps);
  spec.rope_theta = config.rope_theta;
  spec.tied_embeddings = config.tie_word_embeddings;
  spec.dtype = dtype;
  return spec;
}

Result<void> read_slice(const hf::ModelWeightsReader& reader, const ParamInfo& info, const ParamSlice& slice,
                        std::span<float> out) {
  RONDO_ASSIGN(const hf::TensorView view, find_checked(reader, info, slice));
  hf::widen(view, 0, out.first(static_cast<std::size_t>(slice.rows * info.cols)));
  return {};
}

Result<std::unique_ptr<Model>> load_model(const hf::ModelWeightsReader& reader, const ModelSpec& spec) {
  RONDO_ASSIGN(std::unique_ptr<Model> model, Model::create(spec));
  const ParamLayout& layout = model->layout();
  RONDO_TRY(check_names(reader, spec, layout));
  for (std::size_t i = 0; i < layout.params().size(); ++i)
    for (const ParamSlice& slice : layout.params()[i].slices)
      RONDO_TRY(load_slice(reader, layout, static_cast<ParamIndex>(i), slice, model->weights()));
  return model;
}

std::vector<hf::NamedShape> tensor_shapes(const ParamLayout& layout) {
  std::vector<hf::NamedShape> shapes;
  for (const ParamInfo& info : layout.params())
    for (const ParamSlice& slice : info.slices)
      shapes.push_back({slice.name, info.is_vector ? std::vector<std::int64_t>{info.cols}
                                                   : std::vector<std::int64_t>{slice.rows, info.cols}});
  return shapes;
}

Result<void> write_model(const Model& model, const hf::ModelConfig& config,
                         const std::filesystem::path& folder, const std::filesystem::path& source_folder) {
  struct Place {
    ParamIndex param;
    const ParamSlice* slice;
  };
  std::unordered_map<std::string, Place> places;
  const ParamLayout& layout = model.layout();
  for (std::size_t i = 0; i < layout.params().size(); ++i)
    for (const ParamSlice& slice : layout.params()[i].slices)
      places[slice.name] = {static_cast<ParamIndex>(i), &slice};
  const hf::FillTensor fill = [&](const hf::TensorSpec& tensor, std::span<float> out) -> Result<void> {
    const Place& place = places.at(tensor.name);
    model.weights().load(place.param, place.slice->first_row, place.slice->rows, out.data());
    return {};
  };
  const std::vector<hf::NamedShape> shapes = tensor_shapes(layout);
  return hf::write_model_folder(folder, config, shapes, fill,
                                {.dtype = file_dtype(model.spec().dtype), .source_folder = source_folder});
}

}  // namespace rondo::model
