// From a model folder to a Model and back: the names, shapes and types of its tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "hf/model_config.h"
#include "hf/model_weights.h"
#include "hf/model_writer.h"
#include "model/weights.h"

namespace rondo::model {

kernels::DType storage_dtype(hf::DType dtype);
hf::DType file_dtype(kernels::DType dtype);

/// The dimensions in `config`, to be held as `dtype`, for positions up to `max_positions` (0: all the model
/// has). kUnsupported where the kernels have a limit that the model exceeds.
Result<ModelSpec> make_spec(const hf::ModelConfig& config, kernels::DType dtype, std::int64_t max_positions);

/// Reads rows [slice.first_row, +slice.rows) of a parameter as fp32 [rows, cols]. kInvalidArgument, naming
/// the tensor, if the folder's shape differs.
Result<void> read_slice(const hf::ModelWeightsReader& reader, const ParamInfo& info, const ParamSlice& slice,
                        std::span<float> out);

/// Loads all weights, rounded to the spec's type. Each error names the tensor: kNumeric for a value out of
/// the type's range, kNotFound for a missing tensor, kUnsupported for one that the architecture does not use,
/// kInvalidArgument for a shape other than the spec's.
Result<std::unique_ptr<Model>> load_model(const hf::ModelWeightsReader& reader, const ModelSpec& spec);

/// The tensors of the model folder, in the order of the layout.
std::vector<hf::NamedShape> tensor_shapes(const ParamLayout& layout);

/// Writes `model`'s stored weights as a model folder; `options.dtype` is set from the model.
Result<void> write_model(const Model& model, const hf::ModelConfig& config,
                         const std::filesystem::path& folder, const std::filesystem::path& source_folder);

}  // namespace rondo::model
