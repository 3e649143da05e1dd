// Driven by train_oracle_test.py. All files are safetensors of fp32 tensors; token ids are exact in them.
//   train_probe gradient FOLDER DTYPE UNIT OUT   the unnormalised gradient of one unit, by tensor name, and
//                                                "loss" (weighted sum) and "logprobs" (all samples in turn)
//       UNIT: settings [temperature, clip low, clip high, KL, entropy], prompt, advantages, weights,
//             and for sample i tokens.i, old.i, ref.i
//   train_probe adamw FOLDER IN OUT              masters after an update per gradient, and "norms"
//       IN: settings [lr, beta1, beta2, eps, weight decay, clip, normaliser, updates], and gradient t of each
//           tensor as t.NAME
//   train_probe advantages EPSILON BY_STD REWARD…
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "hf/model_config.h"
#include "hf/model_weights.h"
#include "hf/model_writer.h"
#include "model/load.h"
#include "train/adamw.h"
#include "train/unit_pass.h"

namespace rondo::train {
namespace {

using Arrays = std::map<std::string, std::vector<float>>;

// A safetensors file of input arrays.
class Inputs final {
 public:
  static Result<Inputs> open(const std::string& path) {
    RONDO_ASSIGN(auto file, hf::SafetensorsFile::open(path));
    return Inputs(std::move(file));
  }
  Result<std::vector<float>> find(const std::string& name) const {
    RONDO_ASSIGN(const hf::TensorView view, file_->find(name));
    std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
    hf::widen(view, 0, values);
    return values;
  }
  Result<std::vector<Token>> find_tokens(const std::string& name) const {
    RONDO_ASSIGN(const std::vector<float> values, find(name));
    std::vector<Token> tokens;
    for (float value : values) tokens.push_back(static_cast<Token>(value));
    return tokens;
  }

 private:
  explicit Inputs(std::unique_ptr<const hf::SafetensorsFile> file) : file_(std::move(file)) {}
  std::unique_ptr<const hf::SafetensorsFile> file_;
};

Result<void> write(const std::string& path, const Arrays& arrays) {
  std::vector<hf::TensorSpec> specs;
  for (const auto& [name, values] : arrays)
    specs.push_back({name, hf::DType::kFp32, {static_cast<std::int64_t>(values.size())}});
  return hf::write_safetensors(path, specs,
                               [&](const hf::TensorSpec& spec, std::span<float> out) -> Result<void> {
                                 std::ranges::copy(arrays.at(spec.name), out.begin());
                                 return {};
                               });
}

Result<std::unique_ptr<model::Model>> load(const std::string& folder, kernels::DType dtype) {
  RONDO_ASSIGN(const hf::ModelConfig config, hf::ModelConfig::read(folder));
  RONDO_ASSIGN(const auto reader, hf::ModelWeightsReader::open(folder));
  RONDO_ASSIGN(const model::ModelSpec spec, model::make_spec(config, dtype, 512));
  return model::load_model(*reader, spec);
}

Result<TrainUnit> read_unit(const Inputs& in) {
  TrainUnit unit;
  RONDO_ASSIGN(unit.prompt, in.find_tokens("prompt"));
  RONDO_ASSIGN(const auto advantages, in.find("advantages"));
  RONDO_ASSIGN(const auto weights, in.find("weights"));
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    TrainSample sample;
    RONDO_ASSIGN(sample.tokens, in.find_tokens(fmt::format("tokens.{}", i)));
    RONDO_ASSIGN(sample.old_logprobs, in.find(fmt::format("old.{}", i)));
    RONDO_ASSIGN(sample.ref_logprobs, in.find(fmt::format("ref.{}", i)));
    sample.advantage = advantages[i];
    sample.weight = weights[i];
    unit.samples.push_back(std::move(sample));
  }
  return unit;
}

// The gradient under the names of the model folder.
void split_gradient(const model::ParamLayout& layout, const GradientSum& sum, Arrays& out) {
  for (std::size_t i = 0; i < layout.params().size(); ++i) {
    const model::ParamInfo& info = layout.params()[i];
    for (const model::ParamSlice& slice : info.slices) {
      const std::int64_t* from = sum.data(static_cast<model::ParamIndex>(i)) + slice.first_row * info.cols;
      std::vector<float>& values = out[slice.name];
      for (std::int64_t k = 0; k < slice.rows * info.cols; ++k)
        values.push_back(static_cast<float>(static_cast<double>(from[k]) * 0x1p-36));
    }
  }
}

Result<void> gradient(const std::vector<std::string>& args, const kernels::Context& context) {
  const kernels::DType dtype = args[2] == "fp16" ? kernels::DType::kF16 : kernels::DType::kF32;
  RONDO_ASSIGN(const auto model, load(args[1], dtype));
  RONDO_ASSIGN(const Inputs in, Inputs::open(args[3]));
  RONDO_ASSIGN(const TrainUnit unit, read_unit(in));
  RONDO_ASSIGN(const auto settings, in.find("settings"));
  const LossConfig loss{.clip_ratio_low = settings[1],
                        .clip_ratio_high = settings[2],
                        .kl_loss_coef = settings[3],
                        .entropy_coeff = settings[4]};
  Workspace workspace(context);
  UnitPass pass(*model, workspace, std::size_t{256} << 20);
  GradientSum sum(model->layout(), context);
  RONDO_ASSIGN(const UnitReport report, pass.accumulate(unit, loss, settings[0], sum));
  RONDO_ASSIGN(const auto logprobs, pass.logprobs(unit, settings[0]));
  Arrays out;
  split_gradient(model->layout(), sum, out);
  out["loss"] = {static_cast<float>(report.weighted_loss)};
  for (const auto& sample : logprobs)
    out["logprobs"].insert(out["logprobs"].end(), sample.begin(), sample.end());
  return write(args[4], out);
}

Result<void> add_gradients(const Inputs& in, int update, const model::ParamLayout& layout, GradientSum& sum) {
  for (std::size_t i = 0; i < layout.params().size(); ++i)
    for (const model::ParamSlice& slice : layout.params()[i].slices) {
      RONDO_ASSIGN(const auto values, in.find(fmt::format("{}.{}", update, slice.name)));
      RONDO_TRY(sum.add(static_cast<model::ParamIndex>(i), slice.first_row, slice.rows, values.data()));
    }
  return {};
}

Result<void> adamw(const std::vector<std::string>& args, const kernels::Context& context) {
  using State = AdamW::State;
  RONDO_ASSIGN(const auto model, load(args[1], kernels::DType::kF32));
  RONDO_ASSIGN(const Inputs in, Inputs::open(args[2]));
  RONDO_ASSIGN(const auto s, in.find("settings"));
  const OptimizerConfig config{
      .lr = s[0], .beta1 = s[1], .beta2 = s[2], .eps = s[3], .weight_decay = s[4], .clip_grad = s[5]};
  const model::ParamLayout& layout = model->layout();
  AdamW optimizer(layout, context);
  GradientSum sum(layout, context);
  for (std::size_t i = 0; i < layout.params().size(); ++i) {
    const auto param = static_cast<model::ParamIndex>(i);
    model->weights().load(param, 0, layout[param].rows, optimizer.state(State::kMaster, param).data());
  }
  Arrays out;
  for (int t = 0; t < static_cast<int>(s[7]); ++t) {
    sum.reset();
    RONDO_TRY(add_gradients(in, t, layout, sum));
    RONDO_ASSIGN(const UpdateReport report, optimizer.update(config, config.lr, s[6], sum, model->weights()));
    out["norms"].push_back(static_cast<float>(report.grad_norm));
  }
  for (std::size_t i = 0; i < layout.params().size(); ++i) {
    const auto master = optimizer.state(State::kMaster, static_cast<model::ParamIndex>(i));
    for (const model::ParamSlice& slice : layout.params()[i].slices) {
      const auto first = static_cast<std::size_t>(slice.first_row * layout.params()[i].cols);
      const auto count = static_cast<std::size_t>(slice.rows * layout.params()[i].cols);
      const auto values = master.subspan(first, count);
      out[slice.name].assign(values.begin(), values.end());
    }
  }
  return write(args[3], out);
}

void advantages(const std::vector<std::string>& args) {
  std::vector<double> rewards;
  for (std::size_t i = 3; i < args.size(); ++i) rewards.push_back(std::strtod(args[i].c_str(), nullptr));
  const AdvantageConfig config{.norm_adv_by_std = args[2] == "1",
                               .adv_epsilon = std::strtod(args[1].c_str(), nullptr)};
  for (float a : group_advantages(config, rewards)) fmt::print("{:.9g}\n", a);
}

Result<void> run(const std::vector<std::string>& args) {
  ThreadPool pool(2);
  RONDO_ASSIGN(const kernels::OpTable* table, kernels::find_target("auto"));
  const kernels::Context context{table, &pool};
  if (args.size() == 5 && args[0] == "gradient") return gradient(args, context);
  if (args.size() == 4 && args[0] == "adamw") return adamw(args, context);
  if (args.size() < 4 || args[0] != "advantages")
    return fail(
        Code::kInvalidArgument,
        "usage: train_probe gradient FOLDER DTYPE UNIT OUT | adamw FOLDER IN OUT | advantages EPSILON "
        "BY_STD REWARD…");
  advantages(args);
  return {};
}

}  // namespace
}  // namespace rondo::train

int main(int argc, char** argv) {
  const auto result = rondo::train::run(std::vector<std::string>(argv + 1, argv + argc));
  if (result) return 0;
  fmt::print(stderr, "train_probe: {}\n", result.error().to_string());
  return 1;
}
