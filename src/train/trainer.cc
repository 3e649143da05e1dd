#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/checksum.h"
#include "hf/model_writer.h"
#include "model/load.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

struct StateArray {
  AdamW::State state;
  const char* prefix;
};
constexpr StateArray kStateArrays[] = {{AdamW::State::kMaster, "master."},
                                       {AdamW::State::kFirstMoment, "exp_avg."},
                                       {AdamW::State::kSecondMoment, "exp_avg_sq."}};
// The count of updates, as four exact fp32 digits of base 2^16: safetensors holds tensors alone.
constexpr const char* kUpdatesName = "updates";
constexpr int kUpdatesDigits = 4;

std::vector<float> encode_updates(std::int64_t updates) {
  std::vector<float> digits;
  digits.reserve(kUpdatesDigits);
  for (int i = 0; i < kUpdatesDigits; ++i)
    digits.push_back(static_cast<float>((updates >> (16 * i)) & 0xFFFF));
  return digits;
}

std::int64_t decode_updates(std::span<const float> digits) {
  std::int64_t updates = 0;
  for (int i = kUpdatesDigits - 1; i >= 0; --i)
    updates = updates * 65536 + static_cast<std::int64_t>(digits[static_cast<std::size_t>(i)]);
  return updates;
}

// In the header of the file, since any finite bits are a state: a damaged one would train on, to other
// results.
constexpr const char* kChecksumName = "rondo_checksum";

// The checksum of a state: that of a line for each tensor, with its name and the checksum of its bytes.
class StateChecksum final {
 public:
  void add(const std::string& name, std::span<const float> values) {
    lines_ += fmt::format("{} {:016x}\n", name, checksum(std::as_bytes(values)));
  }
  std::string value() const { return fmt::format("{:016x}", checksum(std::as_bytes(std::span(lines_)))); }

 private:
  std::string lines_;
};

// Reads one tensor of `file`, which is `path`. kInvalidArgument if it has another shape.
Result<void> read_tensor(const hf::SafetensorsFile& file, const fs::path& path, const std::string& name,
                         std::initializer_list<std::int64_t> shape, std::span<float> out) {
  RONDO_ASSIGN(const hf::TensorView view, file.find(name));
  if (view.dtype != hf::DType::kFp32 || !std::ranges::equal(view.shape, shape))
    return fail(Code::kInvalidArgument,
                "{}: '{}' is not of this model; resume with the model the run began with", path.string(),
                name);
  hf::widen(view, 0, out);
  // Else hours go by until the next checkpoint refuses to be written.
  if (!std::ranges::all_of(out, [](float value) { return std::isfinite(value); }))
    return fail(Code::kDataLoss, "{}: '{}' holds a value that is not finite, so the file is damaged",
                path.string(), name);
  return {};
}

}  // namespace

Trainer::Trainer(const Config& config, model::Model& model, const kernels::Context& context)
    : config_(config),
      model_(&model),
      workspace_(context),
      optimizer_(model.layout(), context),
      gradient_(model.layout(), context),
      pass_(model, workspace_, static_cast<std::size_t>(config.activation_memory.bytes)) {}

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config, model::Model& model,
                                                 const hf::ModelWeightsReader& masters,
                                                 const kernels::Context& context) {
  std::unique_ptr<Trainer> trainer(new Trainer(config, model, context));
  const model::ParamLayout& layout = model.layout();
  for (std::size_t i = 0; i < layout.params().size(); ++i) {
    const model::ParamInfo& info = layout.params()[i];
    const std::span<float> values =
        trainer->optimizer_.state(AdamW::State::kMaster, static_cast<model::ParamIndex>(i));
    for (const model::ParamSlice& slice : info.slices)
      RONDO_TRY(model::read_slice(masters, info, slice,
                                  values.subspan(static_cast<std::size_t>(slice.first_row * info.cols))));
  }
  return trainer;
}

void Trainer::zero_grad() {
  gradient_.reset();
}

Result<UnitReport> Trainer::accumulate(const TrainUnit& unit, const LossConfig& loss, float temperature) {
  return pass_.accumulate(unit, loss, temperature, gradient_);
}

Result<UpdateReport> Trainer::update(const OptimizerConfig& config, double lr, double normalizer) {
  RONDO_ASSIGN(UpdateReport report, optimizer_.update(config, lr, normalizer, gradient_, model_->weights()));
  pass_.weights_changed();
  return report;
}

Result<std::vector<std::vector<float>>> Trainer::logprobs(const TrainUnit& unit, float temperature) {
  return pass_.logprobs(unit, temperature);
}

Result<void> Trainer::save_state(const fs::path& file) const {
  std::vector<hf::TensorSpec> tensors;
  struct Source {
    std::span<const float> values;
  };
  std::unordered_map<std::string, Source> sources;
  StateChecksum sum;
  const model::ParamLayout& layout = model_->layout();
  for (const StateArray& array : kStateArrays) {
    for (std::size_t i = 0; i < layout.params().size(); ++i) {
      const model::ParamInfo& info = layout.params()[i];
      const std::string name = array.prefix + info.name;
      tensors.push_back({name, hf::DType::kFp32, {info.rows, info.cols}});
      sources[name] = {optimizer_.state(array.state, static_cast<model::ParamIndex>(i))};
      sum.add(name, sources[name].values);
    }
  }
  const std::vector<float> updates = encode_updates(optimizer_.updates());
  tensors.push_back({kUpdatesName, hf::DType::kFp32, {kUpdatesDigits}});
  sources[kUpdatesName] = {updates};
  sum.add(kUpdatesName, updates);
  const auto fill = [&](const hf::TensorSpec& tensor, std::span<float> out) -> Result<void> {
    const std::span<const float> values = sources.at(tensor.name).values;
    std::copy(values.begin(), values.end(), out.begin());
    return {};
  };
  return hf::write_safetensors(file, tensors, fill, {{kChecksumName, sum.value()}});
}

Result<void> Trainer::load_state(const fs::path& path) {
  RONDO_ASSIGN(const auto file, hf::SafetensorsFile::open(path));
  StateChecksum sum;
  const auto read = [&](const std::string& name, std::initializer_list<std::int64_t> shape,
                        std::span<float> out) -> Result<void> {
    RONDO_TRY(read_tensor(*file, path, name, shape, out));
    sum.add(name, out);
    return {};
  };
  const model::ParamLayout& layout = model_->layout();
  for (const StateArray& array : kStateArrays)
    for (std::size_t i = 0; i < layout.params().size(); ++i) {
      const model::ParamInfo& info = layout.params()[i];
      RONDO_TRY(read(array.prefix + info.name, {info.rows, info.cols},
                     optimizer_.state(array.state, static_cast<model::ParamIndex>(i))));
    }
  std::vector<float> updates(kUpdatesDigits);
  RONDO_TRY(read(kUpdatesName, {kUpdatesDigits}, updates));
  const auto expected = file->metadata().find(kChecksumName);  // earlier versions wrote none
  if (expected != file->metadata().end() && expected->second != sum.value())
    return fail(Code::kDataLoss, "{}: its checksum is {}, but its values give {}, so the file is damaged",
                path.string(), expected->second, sum.value());
  optimizer_.set_updates(decode_updates(updates));
  RONDO_TRY(optimizer_.store_weights(model_->weights()));
  pass_.weights_changed();
  return {};
}

Trainer::Memory Trainer::memory() const {
  return {optimizer_.bytes(), gradient_.bytes(), workspace_.pool.peak_bytes()};
}

}  // namespace rondo::train
