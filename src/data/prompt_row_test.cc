#include "data/prompt_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace rondo::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Result<std::vector<PromptRow>> parse(std::string_view bytes, const Config& config = {}) {
  return parse_prompts(bytes, "train.jsonl", config);
}

PromptRow parse_one(std::string_view bytes, const Config& config = {}) {
  const auto rows = parse(bytes, config);
  if (!rows) {
    ADD_FAILURE() << rows.error().message();
    return {};
  }
  EXPECT_EQ(rows->size(), 1u);
  return rows->front();
}

std::string error_of(std::string_view bytes, const Config& config = {}) {
  const auto rows = parse(bytes, config);
  return rows ? "no error" : rows.error().message();
}

TEST(PromptRowTest, ReadsVerlsLayout) {
  const PromptRow row = parse_one(
      R"({"data_source": "openai/gsm8k", "prompt": [{"role": "system", "content": "Be brief."},)"
      R"( {"role": "user", "content": "6*12? \u00e9"}], "ability": "math",)"
      R"( "reward_model": {"style": "rule", "ground_truth": "72"}, "extra_info": {"split": "train", "index": 3}})");
  EXPECT_TRUE(row.is_chat());
  EXPECT_EQ(row.messages, (std::vector<Message>{{.role = "system", .content = "Be brief."},
                                                {.role = "user", .content = "6*12? é"}}));
  EXPECT_EQ(row.data_source, "openai/gsm8k");
  EXPECT_EQ(row.ground_truth, "72");
  EXPECT_EQ(row.extra_info_json, R"({"index":3,"split":"train"})");
}

TEST(PromptRowTest, ReadsPromptWithLabelOrAnswer) {
  const auto rows = parse(
      "{\"prompt\": \"a\", \"label\": \"1\", \"datasource\": \"x\"}\n{\"prompt\": \"b\", \"answer\": 2}\n");
  ASSERT_TRUE(rows);
  EXPECT_EQ((*rows)[0], (PromptRow{.messages = {},
                                   .text = "a",
                                   .data_source = "x",
                                   .ground_truth = "1",
                                   .extra_info_json = {},
                                   .index = 0,
                                   .place = "train.jsonl:1"}));
  EXPECT_EQ((*rows)[1], (PromptRow{.messages = {},
                                   .text = "b",
                                   .data_source = "",
                                   .ground_truth = "2",
                                   .extra_info_json = {},
                                   .index = 1,
                                   .place = "train.jsonl:2"}));
}

TEST(PromptRowTest, AutoPrefersTheRewardModelAndSkipsNull) {
  EXPECT_EQ(parse_one(R"({"prompt":"a","answer":"1","label":"2","reward_model":{"ground_truth":"3"}})")
                .ground_truth,
            "3");
  EXPECT_EQ(parse_one(R"({"prompt":"a","answer":"1","label":null,"reward_model":null})").ground_truth, "1");
}

TEST(PromptRowTest, KeysNameColumnsOrPaths) {
  const Config config{.prompt_key = "question", .answer_key = "extra_info.answer", .data_source = "mine"};
  const PromptRow row = parse_one(R"({"question": "q", "extra_info": {"answer": 4}})", config);
  EXPECT_EQ(row.text, "q");
  EXPECT_EQ(row.ground_truth, "4");
  EXPECT_EQ(row.data_source, "mine");
  EXPECT_EQ(parse_one(R"({"a.b": "column", "a": {"b": "path"}, "label": "1"})", {.prompt_key = "a.b"}).text,
            "column");
}

TEST(PromptRowTest, NumbersBecomeTheTextOfThatNumber) {
  const auto truth = [](const std::string& number) {
    return parse_one(R"({"prompt":"a","label":)" + number + "}").ground_truth;
  };
  EXPECT_EQ(truth("72"), "72");
  EXPECT_EQ(truth("-0"), "0");
  EXPECT_EQ(truth("2.5"), "2.5");
  EXPECT_EQ(truth("18446744073709551615"), "18446744073709551615");
  EXPECT_THAT(error_of(R"({"prompt":"a","label":18446744073709551616})"), HasSubstr("write it as a string"));
}

TEST(PromptRowTest, AcceptsByteOrderMarkCrlfBlankLinesAndNoLastLineEnd) {
  const auto rows =
      parse("\xEF\xBB\xBF{\"prompt\":\"a\",\"label\":1}\r\n\r\n  \n{\"prompt\":\"b\",\"label\":2}");
  ASSERT_TRUE(rows) << rows.error().message();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].text, "b");
}

TEST(PromptRowTest, ErrorsNameFileLineAndColumn) {
  EXPECT_THAT(error_of("{\"prompt\":\"a\",\"label\":1}\n\n{\"prompt\":\"a\""),
              testing::StartsWith("train.jsonl:3: not JSON: column 14: syntax error while parsing object"));
}

TEST(PromptRowTest, ErrorsDoNotQuoteWholeRows) {
  std::string row = "{\"prompt\":\"";
  for (int i = 0; i < 100000; ++i) row += "é";
  const std::string message = error_of(row);
  EXPECT_THAT(message, HasSubstr("é …"));
  EXPECT_LT(message.size(), 300u);
}

TEST(PromptRowTest, RejectsWhatIsNotARow) {
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("train.jsonl:1: a JSON array where a row"));
  EXPECT_THAT(error_of("{\"prompt\":\"caf\xE9\",\"label\":1}"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of(std::string_view("{\"prompt\":\"a\0\",\"label\":1}", 25)), HasSubstr("NUL bytes"));
  EXPECT_THAT(error_of(std::string_view("\xFF\xFE{\0\"\0", 6)), HasSubstr("UTF-16"));
}

TEST(PromptRowTest, RejectsNestingThatWouldExhaustTheStack) {
  const std::string deep = "{\"prompt\":\"a\",\"label\":1,\"extra_info\":" + std::string(100000, '[') +
                           std::string(100000, ']') + "}";
  EXPECT_THAT(error_of(deep), HasSubstr("nested deeper than"));
  EXPECT_EQ(parse_one("{\"prompt\":\"" + std::string(1000, '[') + "\\\"[[\",\"label\":1}").text.size(),
            1003u);
}

TEST(PromptRowTest, RejectsALineThatIsTooLong) {
  EXPECT_THAT(error_of(std::string((std::size_t{64} << 20) + 1, 'x')), HasSubstr("is this a jsonl file"));
}

TEST(PromptRowTest, MissingPromptNamesTheColumnsThatAreThere) {
  EXPECT_THAT(error_of(R"({"question":"q","answer":"1"})"),
              HasSubstr("the row has no \"prompt\" (it has: answer, question); set data.prompt_key"));
  EXPECT_THAT(error_of(R"({"prompt":"","label":1})"), HasSubstr("is empty"));
  EXPECT_THAT(error_of(R"({"prompt":[],"label":1})"), HasSubstr("is empty"));
  EXPECT_THAT(error_of(R"({"prompt":7,"label":1})"), HasSubstr("is a JSON number"));
}

TEST(PromptRowTest, BadMessagesAreNumbered) {
  const auto second = [](const std::string& message) {
    return error_of(R"({"label":1,"prompt":[{"role":"user","content":"a"},)" + message + "]}");
  };
  EXPECT_THAT(second("\"text\""), HasSubstr("message 2 of the prompt is a JSON string"));
  EXPECT_THAT(second(R"({"content":"b"})"), HasSubstr("message 2 of the prompt has no role"));
  EXPECT_THAT(second(R"({"role":"asistant","content":"b"})"), HasSubstr("nearest valid: \"assistant\""));
  EXPECT_THAT(second(R"({"role":"user","content":[{"type":"image"}]})"), HasSubstr("only text is supported"));
}

TEST(PromptRowTest, MissingAnswerIsAnErrorUnlessOptional) {
  const char* row = R"({"prompt":"a","solution":"1"})";
  EXPECT_THAT(error_of(row), HasSubstr("no ground truth under reward_model.ground_truth, label or answer"));
  EXPECT_THAT(error_of(row, {.answer_key = "sol"}),
              HasSubstr("no ground truth under sol (the row has: prompt, solution)"));
  EXPECT_THAT(error_of(R"({"prompt":"a","label":[1]})"), HasSubstr("\"label\" is a JSON array"));
  const auto rows = parse_prompts(row, "x", {}, GroundTruth::kOptional);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->front().ground_truth, "");
}

TEST(PromptRowTest, ConfigNeedsKeys) {
  EXPECT_TRUE(Config{}.validate());
  EXPECT_FALSE(Config{.prompt_key = ""}.validate());
  EXPECT_FALSE(Config{.answer_key = ""}.validate());
}

class PromptFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(write_file_durable(path, bytes));
    return path;
  }
  const fs::path folder_ = fs::path(testing::TempDir()) / "rondo_prompt_file_test";
};

TEST_F(PromptFileTest, FilesConcatenateAndIndicesRunOn) {
  const std::string a = write("a.jsonl", "{\"prompt\":\"a\",\"label\":1}\n{\"prompt\":\"b\",\"label\":2}\n");
  const std::string b = write("b.json", "{\"prompt\":\"c\",\"label\":3}");
  const auto rows = read_prompts({a, b, a}, {});
  ASSERT_TRUE(rows) << rows.error().message();
  std::string texts;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    texts += (*rows)[i].text;
    EXPECT_EQ((*rows)[i].index, static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(texts, "abcab");
}

TEST_F(PromptFileTest, RowsAreNamedByFileAndLine) {
  const std::string a = write("a.jsonl", "{\"prompt\":\"a\",\"label\":1}\n");
  const std::string b =
      write("b.jsonl", "\n{\"prompt\":\"b\",\"label\":2}\n \n{\"prompt\":\"c\",\"label\":3}\n");
  const auto rows = read_prompts({a, b}, {});
  ASSERT_TRUE(rows) << rows.error().message();
  EXPECT_EQ((*rows)[0].name(), "the prompt at " + a + ":1");
  EXPECT_EQ((*rows)[1].name(), "the prompt at " + b + ":2");
  EXPECT_EQ((*rows)[2].name(), "the prompt at " + b + ":4");
  EXPECT_EQ(PromptRow{}.name(), "prompt 1") << "given on the command line";
}

TEST_F(PromptFileTest, NothingToReadIsAnErrorThatNamesTheFile) {
  EXPECT_FALSE(read_prompts({}, {}));
  const std::string empty = write("empty.jsonl", "\n \n");
  EXPECT_THAT(read_prompts({empty}, {}).error().message(), HasSubstr("empty.jsonl holds no rows"));
  EXPECT_EQ(read_prompts({(folder_ / "none.jsonl").string()}, {}).error().code(), Code::kNotFound);
  EXPECT_FALSE(read_prompts({folder_.string()}, {}));
}

TEST_F(PromptFileTest, ParquetSaysHowToConvert) {
  const auto rows = read_prompts({"data/train.Parquet"}, {});
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code(), Code::kUnsupported);
  EXPECT_THAT(rows.error().message(), HasSubstr("to_json(\"data/train.jsonl\")"));
}

}  // namespace
}  // namespace rondo::data
