#include "data/response_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/rollout_dump.h"

namespace rondo::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ResponseLengthsTest, PromptsInOrderOfAppearanceSamplesByIndex) {
  const auto lengths = parse_response_lengths(
      "{\"prompt_id\": \"b\", \"sample\": 1, \"length\": 7}\n"
      "{\"prompt_id\": \"a\", \"sample\": 0, \"length\": 9, \"more\": true}\n"
      "{\"prompt_id\": \"b\", \"sample\": 0, \"length\": 3}\n",
      "f");
  ASSERT_TRUE(lengths) << lengths.error().message();
  EXPECT_THAT(*lengths, ElementsAre(ElementsAre(3, 7), ElementsAre(9)));
}

TEST(ResponseLengthsTest, ReadsARolloutDump) {
  auto writer = RolloutWriter::create(::testing::TempDir(), 9'100).value();
  for (int sample = 0; sample < 2; ++sample) {
    RolloutRow row;
    row.step = 9'100;
    row.prompt_index = 5;
    row.sample = sample;
    row.response_tokens.assign(static_cast<std::size_t>(4 + sample), 1);
    row.log_probs.assign(row.response_tokens.size(), -1.0F);
    ASSERT_TRUE(writer.append(row));
  }
  ASSERT_TRUE(writer.finish());
  EXPECT_THAT(read_response_lengths(rollout_path(::testing::TempDir(), 9'100)).value(),
              ElementsAre(ElementsAre(4, 5)));
}

TEST(ResponseLengthsTest, ErrorsSayWhereAndWhat) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "f has no rows"},
      {"{\"prompt_id\": 1, \"sample\": 0, \"length\": 0}\n", "f:1: \"length\" is no integer of at least 1"},
      {"{\"prompt_id\": 1, \"sample\": -1, \"length\": 5}\n", "\"sample\" is no integer of at least 0"},
      {"{\"sample\": 0, \"length\": 5}\n", "no \"prompt_id\""},
      {"{\"prompt_id\": 1, \"sample\": 0}\n", "\"length\" is no integer"},
      {"{\"prompt_id\": 1, \"sample\": 0, \"length\": 1e30}\n", "\"length\" is no integer"},
      {"{\"prompt_id\": 1, \"sample\": 1, \"length\": 5}\n", "prompt 1 has 1 samples, but no sample 0"},
      {"{\"prompt_id\": 1, \"sample\": 0, \"length\": 5}\n{\"prompt_id\": 1, \"sample\": 0, \"length\": 5}\n",
       "f:2: sample 0 of prompt 1 is there twice"},
      {"not json\n", "f:1"}};
  for (const auto& [text, message] : cases) {
    const auto lengths = parse_response_lengths(text, "f");
    ASSERT_FALSE(lengths) << text;
    EXPECT_THAT(lengths.error().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace rondo::data
