#include "train/trainer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/file.h"
#include "hf/model_config.h"
#include "model/load.h"
#include "train/test_units.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

std::string test_folder() {
  std::string pattern = ::testing::TempDir() + "/rondo_train_XXXXXX";
  return ::mkdtemp(pattern.data());
}

// The state as earlier versions wrote it.
std::string without_checksum(std::string state) {
  const std::string_view begin = R"(,"rondo_checksum":")";
  const std::size_t at = state.find(begin), length = begin.size() + 17;
  EXPECT_NE(at, std::string::npos);
  state.erase(at, length);
  // The header stays as long as it was: spaces at its end are part of it.
  return state.insert(state.find("}}") + 2, length, ' ');
}

// A folder with a tiny model (fp32 weights), and trainers of it.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : folder_(test_folder()) {
    const auto written = testing::write_tiny_model_folder(folder_ / "model", 3);
    EXPECT_TRUE(written) << written.error().to_string();
    reader_ = hf::ModelWeightsReader::open(folder_ / "model").value();
    config_ = hf::ModelConfig::read(folder_ / "model").value();
  }
  ~TrainerTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  struct Run {
    std::unique_ptr<model::Model> model;
    std::unique_ptr<Trainer> trainer;
  };
  Run make_run(kernels::DType dtype = kernels::DType::kF16) {
    Run run;
    run.model = model::load_model(*reader_, model::make_spec(*config_, dtype, 0).value()).value();
    run.trainer = Trainer::create({}, *run.model, *reader_, compute_.context()).value();
    return run;
  }
  // One optimiser step on a unit that `seed` decides.
  static void train_step(Run& run, std::uint32_t seed) {
    const TrainUnit unit = make_train_unit(NaivePolicy(*run.model), 260, 7, {5, 3}, 1.0F, seed);
    run.trainer->zero_grad();
    ASSERT_TRUE(run.trainer->accumulate(unit, {}, 1.0F));
    ASSERT_TRUE(run.trainer->update({}, 1e-2, 8));
  }
  static std::vector<float> logprobs(Run& run) {
    const TrainUnit unit = make_train_unit(NaivePolicy(*run.model), 260, 12, {20}, 1.0F, 77);
    return run.trainer->logprobs(unit, 1.0F).value()[0];
  }
  std::string saved_state(const Run& run, const char* name) {
    EXPECT_TRUE(run.trainer->save_state(folder_ / name));
    return read_file(folder_ / name).value();
  }

  fs::path folder_;
  std::unique_ptr<const hf::ModelWeightsReader> reader_;
  std::optional<hf::ModelConfig> config_;
  testing::Compute compute_{2};
};

TEST_F(TrainerTest, MastersAreTheFoldersExactValues) {
  Run run = make_run(kernels::DType::kBF16);
  saved_state(run, "state");
  const auto file = hf::SafetensorsFile::open(folder_ / "state").value();
  const auto stored = reader_->find("model.layers.1.mlp.down_proj.weight").value();
  const auto master = file->find("master.layers.1.down").value();
  ASSERT_EQ(master.num_elements(), stored.num_elements());
  std::vector<float> a(static_cast<std::size_t>(stored.num_elements())), b(a.size());
  hf::widen(stored, 0, a);
  hf::widen(master, 0, b);
  EXPECT_EQ(a, b);
}

TEST_F(TrainerTest, AnUpdateMovesTheLogprobsOfTheNextPass) {
  Run run = make_run();
  const auto before = logprobs(run);
  train_step(run, 1);
  EXPECT_NE(logprobs(run), before);
  // A fresh trainer on the same weights agrees: nothing computed from the old ones was kept.
  Run fresh = make_run();
  ASSERT_TRUE(run.trainer->save_state(folder_ / "state"));
  ASSERT_TRUE(fresh.trainer->load_state(folder_ / "state"));
  train_step(run, 2);
  train_step(fresh, 2);
  EXPECT_EQ(saved_state(run, "a"), saved_state(fresh, "b"));
}

TEST_F(TrainerTest, AResumedRunHasTheSameBits) {
  Run whole = make_run();
  for (std::uint32_t t = 1; t <= 2; ++t) train_step(whole, t);
  const std::string state = saved_state(whole, "state");
  Run resumed = make_run();
  const auto loaded = resumed.trainer->load_state(folder_ / "state");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(resumed.trainer->updates(), 2);
  EXPECT_EQ(saved_state(resumed, "again"), state);
  EXPECT_EQ(logprobs(resumed), logprobs(whole));
  train_step(whole, 3);
  train_step(resumed, 3);
  EXPECT_EQ(saved_state(whole, "a"), saved_state(resumed, "b"));
}

TEST_F(TrainerTest, AFailedUnitSpoilsTheStepUntilZeroGrad) {
  Run run = make_run();
  train_step(run, 1);
  const std::string before = saved_state(run, "before");
  TrainUnit unit = make_train_unit(NaivePolicy(*run.model), 260, 7, {5, 3});
  run.trainer->zero_grad();
  ASSERT_TRUE(run.trainer->accumulate(unit, {}, 1.0F));
  TrainUnit bad = unit;
  bad.samples[0].tokens[0] = 260;
  EXPECT_FALSE(run.trainer->accumulate(bad, {}, 1.0F));
  EXPECT_FALSE(run.trainer->accumulate(unit, {}, 1.0F));
  EXPECT_FALSE(run.trainer->update({}, 1e-2, 8));
  EXPECT_EQ(run.trainer->updates(), 1);
  EXPECT_EQ(saved_state(run, "after"), before);
  run.trainer->zero_grad();
  ASSERT_TRUE(run.trainer->accumulate(unit, {}, 1.0F));
  EXPECT_TRUE(run.trainer->update({}, 1e-2, 8));
  EXPECT_EQ(run.trainer->updates(), 2);
}

TEST_F(TrainerTest, StateThatIsNotThisModelsIsRefused) {
  Run run = make_run();
  const std::string state = saved_state(run, "state");
  const auto expect_refused = [&](const std::string& bytes, Code code) {
    ASSERT_TRUE(write_file_durable(folder_ / "bad", bytes));
    Run other = make_run();
    const auto loaded = other.trainer->load_state(folder_ / "bad");
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code(), code) << loaded.error().to_string();
    EXPECT_NE(loaded.error().message().find("bad"), std::string::npos) << loaded.error().message();
  };
  expect_refused(state.substr(0, state.size() - 4), Code::kDataLoss);
  expect_refused(state.substr(0, 5), Code::kDataLoss);
  expect_refused("", Code::kDataLoss);
  std::string damaged = state;  // among the second moments, which come last but for the number of updates
  std::fill(damaged.end() - 400, damaged.end() - 100, '\xff');
  expect_refused(damaged, Code::kDataLoss);
  expect_refused(without_checksum(damaged), Code::kDataLoss);
  // Another model's: same names, other shapes.
  model::ModelSpec spec = run.model->spec();
  spec.intermediate += 16;
  const auto wider = testing::random_model(spec, 1);
  std::vector<hf::TensorSpec> tensors;
  for (const model::ParamInfo& info : wider->layout().params())
    for (const char* prefix : {"master.", "exp_avg.", "exp_avg_sq."})
      tensors.push_back({prefix + info.name, hf::DType::kFp32, {info.rows, info.cols}});
  ASSERT_TRUE(hf::write_safetensors(folder_ / "wide", tensors,
                                    [](const auto&, std::span<float>) -> Result<void> { return {}; }));
  expect_refused(read_file(folder_ / "wide").value(), Code::kInvalidArgument);
  EXPECT_EQ(run.trainer->load_state(folder_ / "absent").error().code(), Code::kNotFound);
}

// In the numbers each is found; in the header it may hit what is not read, or the checksum's own name.
TEST_F(TrainerTest, AFlippedBitIsRefusedOrChangesNothing) {
  Run run = make_run();
  train_step(run, 1);
  const std::string state = saved_state(run, "state");
  const std::size_t header = state.size() - static_cast<std::size_t>(run.model->layout().total()) * 12 - 16;
  std::vector<std::size_t> bits;
  for (std::size_t byte = 0; byte < header; byte += 7) bits.push_back(byte * 8 + byte % 8);
  for (std::size_t bit = header * 8; bit < state.size() * 8; bit += state.size() / 8 + 1) bits.push_back(bit);
  for (std::size_t byte = state.size() - 16; byte < state.size(); ++byte)
    bits.push_back(byte * 8 + 1);  // updates
  Run other = make_run();
  int refused = 0, harmless = 0;
  for (const std::size_t bit : bits) {
    std::string damaged = state;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(write_file_durable(folder_ / "bad", damaged));
    const auto loaded = other.trainer->load_state(folder_ / "bad");
    ++(loaded ? harmless : refused);
    if (!loaded) continue;
    EXPECT_LT(bit / 8, header);
    EXPECT_TRUE(saved_state(other, "again") == state) << bit;
  }
  EXPECT_GT(refused, 10 * harmless);
}

TEST_F(TrainerTest, AStateWithoutChecksumIsLoaded) {
  Run run = make_run();
  train_step(run, 1);
  const std::string state = saved_state(run, "state");
  ASSERT_TRUE(write_file_durable(folder_ / "old", without_checksum(state)));
  Run other = make_run();
  const auto loaded = other.trainer->load_state(folder_ / "old");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_TRUE(saved_state(other, "again") == state);
}

TEST_F(TrainerTest, MemoryCountsOptimizerAndGradient) {
  Run run = make_run();
  const auto values = static_cast<std::size_t>(run.model->layout().total());
  EXPECT_EQ(run.trainer->memory().optimizer, values * 12);
  EXPECT_EQ(run.trainer->memory().gradient, values * 8);
  EXPECT_EQ(run.trainer->memory().activations, 0U);
  train_step(run, 1);
  EXPECT_GT(run.trainer->memory().activations, 0U);
}

}  // namespace
}  // namespace rondo::train
