#include "config/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>

#include "config/example_config.h"
#include "config/load.h"

namespace rondo::config {
namespace {

using testing::HasSubstr;

TEST(DumpTest, PrintsRootFieldsBeforeSections) {
  ExampleConfig config;
  config.name = "a\"\\\n\x01";
  config.eval.stop = {"x", "y"};
  EXPECT_EQ(to_toml_of(config), R"(seed = 1
total_tokens = 0
name = "a\"\\\n\u0001"
loss_agg_mode = "token-mean"
betas = [0.9, 0.999]

[rollout]
n = 8
chunked = true
kv_memory = "1GiB"

[rollout.sampling]
temperature = 1.0
top_p = 1.0
stop = []

[eval]
temperature = 1.0
top_p = 1.0
stop = ["x", "y"]
)");
}

TEST(DumpTest, AnnotatedDumpShowsDocTypeAndDefault) {
  ExampleConfig config;
  config.rollout.n = 3;
  const std::string text = to_annotated_toml_of(config);
  EXPECT_THAT(text, HasSubstr("# Responses per prompt.\n# integer >= 1 and <= 1024; default 8\nn = 3\n"));
  EXPECT_THAT(text, HasSubstr("\n# Sampling of the evaluation.\n# Greedy as a rule.\n[eval]\n"));
}

TEST(DumpTest, AnnotatedDumpLoadsToTheSameConfig) {
  ExampleConfig config;
  config.rollout.sampling.stop = {"#"};
  config.loss_agg_mode = Aggregation::kSequenceMean;
  ExampleConfig loaded;
  ASSERT_TRUE(load_text(FieldList(loaded), to_annotated_toml_of(config), "dump"));
  EXPECT_EQ(to_toml_of(loaded), to_toml_of(config));
}

TEST(DumpTest, ReferencePageHasATablePerSectionAndEscapesBars) {
  ExampleConfig config;
  const std::string page = to_markdown(FieldList(config), "Configuration");
  EXPECT_THAT(page, HasSubstr("# Configuration\n"));
  EXPECT_THAT(page, HasSubstr("\n## `rollout.sampling`\n\nHow tokens are drawn.\n\n| Key | Type |"));
  EXPECT_THAT(page, HasSubstr("| `eval.top_p` | number > 0 and <= 1 | `1.0` | Nucleus \\| mass. |\n"));
  EXPECT_THAT(page, HasSubstr("| \"token-mean\" \\| \"seq-mean\" |"));
}

// Any bit pattern that is a valid value, which is finite.
template <class Float, class Bits>
Float from_bits(Bits bits) {
  const auto value = std::bit_cast<Float>(bits);
  return std::isfinite(value) ? value : Float(-0.0);
}

std::string text_from(const std::vector<std::uint32_t>& code_points) {
  std::string out;
  for (std::uint32_t c : code_points) {
    c %= 0xD800;
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
      out += static_cast<char>(0xE0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

struct WideConfig {
  double real = 0;
  float single = 0;
  std::int64_t integer = 0;
  std::string text;
  std::vector<std::string> texts;
  std::vector<double> reals;
  ByteSize size;

  template <class V>
  void visit(V& v) {
    v.field("real", real, "");
    v.field("single", single, "");
    v.field("integer", integer, "");
    v.field("text", text, "");
    v.field("texts", texts, "");
    v.field("reals", reals, "");
    v.field("size", size, "");
  }
};

TEST(DumpTest, EdgeFloatsLoadToTheSameBits) {
  // Among them the largest float, whose shortest text is beyond it when read as a double.
  for (const float value : {3.4028235e38f, -3.4028235e38f, 1e-45f, 1.17549435e-38f, -0.0f, 0.1f}) {
    WideConfig config;
    config.single = value;
    WideConfig loaded;
    ASSERT_TRUE(load_text(FieldList(loaded), to_toml_of(config), "dump")) << value;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(loaded.single), std::bit_cast<std::uint32_t>(value)) << value;
  }
}

RC_GTEST_PROP(DumpTest, DumpLoadsToTheSameBits, ()) {
  const auto low = rc::gen::inRange<std::uint32_t>(0, 0x100);
  const auto any = rc::gen::arbitrary<std::uint32_t>();
  WideConfig config;
  config.real = from_bits<double>(*rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>()));
  config.single = from_bits<float>(*rc::gen::resize(rc::kNominalSize, any));
  config.integer = *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::int64_t>());
  config.text = text_from(*rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(low, any)));
  config.texts = {config.text, text_from(*rc::gen::container<std::vector<std::uint32_t>>(low))};
  config.reals = {config.real, 3.0, 1e22};
  config.size = ByteSize{*rc::gen::inRange<std::int64_t>(0, 999'999'999'999'999'999)};

  WideConfig loaded;
  const auto result = load_text(FieldList(loaded), to_toml_of(config), "dump");
  if (!result) RC_FAIL(result.error().message() + "\n" + to_toml_of(config));
  RC_ASSERT(std::bit_cast<std::uint64_t>(loaded.real) == std::bit_cast<std::uint64_t>(config.real));
  RC_ASSERT(std::bit_cast<std::uint32_t>(loaded.single) == std::bit_cast<std::uint32_t>(config.single));
  RC_ASSERT(loaded.integer == config.integer);
  RC_ASSERT(loaded.text == config.text);
  RC_ASSERT(loaded.texts == config.texts);
  RC_ASSERT(loaded.reals == config.reals);
  RC_ASSERT(loaded.size == config.size);
}

}  // namespace
}  // namespace rondo::config
