#include "rl/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Token kImStart = 256, kImEnd = 257;

class PromptsTest : public ::testing::Test {
 protected:
  PromptsTest() : tokenizer_(text::Tokenizer::from_file(tiny_.model() / "tokenizer.json").value()) {}

  Result<PromptSet> load(std::string_view rows) {
    return load_prompts({tiny_.write("rows.jsonl", rows)}, data_, tiny_.model().string(), *tokenizer_,
                        data::GroundTruth::kRequired);
  }

  std::string error_of(std::string_view rows) {
    const auto set = load(rows);
    return set ? "no error" : set.error().message();
  }

  TinyRun tiny_;
  DataSection data_;
  std::unique_ptr<const text::Tokenizer> tokenizer_;
};

TEST_F(PromptsTest, PlainTextIsTokenisedAsItIs) {
  const auto set = load(R"({"prompt": "abc", "label": "1", "data_source": "s"})");
  ASSERT_TRUE(set) << set.error().message();
  ASSERT_EQ(set->prompts.size(), 1u);
  EXPECT_EQ(set->prompts[0].text, "abc");
  EXPECT_THAT(*set->prompts[0].tokens, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(set->prompts[0].row.data_source, "s");
  EXPECT_EQ(set->skipped, 0);
}

TEST_F(PromptsTest, MessagesGoThroughTheChatTemplate) {
  const auto set = load(R"({"prompt": [{"role": "user", "content": "hi"}], "label": "1"})");
  ASSERT_TRUE(set) << set.error().message();
  const Prompt& prompt = set->prompts[0];
  EXPECT_EQ(prompt.text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(std::count(prompt.tokens->begin(), prompt.tokens->end(), kImStart), 2);
  EXPECT_EQ(std::count(prompt.tokens->begin(), prompt.tokens->end(), kImEnd), 1);
}

TEST_F(PromptsTest, ChatTemplateOfAnotherFamilyCanBeAskedFor) {
  data_.chat_template = "llama3";
  const auto set = load(R"({"prompt": [{"role": "user", "content": "hi"}], "label": "1"})");
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_THAT(set->prompts[0].text, HasSubstr("<|start_header_id|>user"));
  data_.chat_template = "lama3";
  EXPECT_THAT(error_of(R"({"prompt": [{"role": "user", "content": "hi"}], "label": "1"})"),
              ::testing::AllOf(HasSubstr("data.chat_template"), HasSubstr("llama3")));
}

TEST_F(PromptsTest, UnknownTemplateDoesNotMatterToPlainText) {
  data_.chat_template = "none of these";
  EXPECT_TRUE(load(R"({"prompt": "abc", "label": "1"})"));
}

TEST_F(PromptsTest, OverlongPromptsAreSkippedAndCounted) {
  data_.max_prompt_length = 4;
  const auto set = load(
      "{\"prompt\": \"1234\", \"label\": \"1\"}\n{\"prompt\": \"12345\", \"label\": \"1\"}\n"
      "{\"prompt\": \"123\", \"label\": \"1\"}\n");
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_EQ(set->skipped, 1);
  ASSERT_EQ(set->prompts.size(), 2u);
  EXPECT_EQ(set->prompts[0].row.index, 0);
  EXPECT_EQ(set->prompts[1].row.index, 2);  // the place in the file, not in the set
}

TEST_F(PromptsTest, OverlongPromptIsAnErrorWhereTheConfigSaysSo) {
  data_.max_prompt_length = 4;
  data_.overlong_prompts = OverlongPrompts::kError;
  EXPECT_THAT(
      error_of("{\"prompt\": \"1234\", \"label\": \"1\"}\n{\"prompt\": \"12345\", \"label\": \"1\"}\n"),
      HasSubstr("rows.jsonl:2 has 5 tokens, more than data.max_prompt_length = 4"));
}

TEST_F(PromptsTest, NothingUsableIsAnError) {
  data_.max_prompt_length = 2;
  EXPECT_THAT(error_of(R"({"prompt": "abc", "label": "1"})"),
              HasSubstr("no prompt has at most data.max_prompt_length = 2 tokens (1 are longer)"));
}

TEST_F(PromptsTest, EmptyFileAndBadRowNameTheFile) {
  EXPECT_THAT(error_of(""), HasSubstr("rows.jsonl"));
  EXPECT_THAT(error_of("{\"prompt\": \"a\", \"label\": \"1\"}\n{\"label\": \"1\"}\n"),
              HasSubstr("rows.jsonl:2"));
  EXPECT_THAT(error_of(R"({"prompt": "a"})"), HasSubstr("rows.jsonl:1"));
}

}  // namespace
}  // namespace rondo::rl
