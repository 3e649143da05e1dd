#include "sim/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::sim {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text, const TraceConfig& config = {}) {
  const auto trace = parse_trace(config, text, "t.jsonl");
  return trace ? "no error" : trace.error().message();
}

TEST(Trace, ReadsPlainRowsInAnyOrderOfSamples) {
  const auto trace = parse_trace({},
                                 R"({"prompt_id": "b", "sample": 1, "length": 20}
{"prompt_id": "a", "sample": 0, "length": 5, "prompt_length": 77}
{"prompt_id": "b", "sample": 0, "length": 10}
{"prompt_id": "a", "sample": 1, "length": 6}
)",
                                 "t.jsonl");
  ASSERT_TRUE(trace) << trace.error().message();
  ASSERT_EQ(trace->groups.size(), 2U);
  EXPECT_EQ(trace->groups[0].samples[0].true_tokens, 10);
  EXPECT_EQ(trace->groups[0].samples[1].true_tokens, 20);
  EXPECT_EQ(trace->groups[1].prompt_tokens, 77);
  EXPECT_EQ(trace->groups[1].samples[1].id, RequestId(3));
  EXPECT_EQ(trace->groups[1].samples[1].max_new_tokens, 20);
  EXPECT_TRUE(trace->tokens.empty());
}

TEST(Trace, ReadsRondosDumpWithTokens) {
  const auto trace = parse_trace(
      {},
      R"({"step": 3, "prompt_index": 17, "ordinal": 0, "sample": 0, "input": "q", "prompt_tokens": [1, 2], "response_tokens": [3, 4, 5]}
{"step": 3, "prompt_index": 17, "ordinal": 0, "sample": 1, "input": "q", "prompt_tokens": [1, 2], "response_tokens": [6]})",
      "t.jsonl");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->groups[0].prompt_tokens, 2);
  EXPECT_EQ(trace->tokens, (std::vector<std::vector<Token>>{{3, 4, 5}, {6}}));
}

TEST(Trace, ReadsSlimesRowsWithPromptAndResponseInOneList) {
  const auto trace =
      parse_trace({},
                  R"({"group_index": 0, "index": 0, "tokens": [1, 2, 3, 4, 5], "response_length": 2}
{"group_index": 0, "index": 1, "tokens": [1, 2, 3, 9], "response_length": 1})",
                  "t.jsonl");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->groups[0].prompt_tokens, 3);
  EXPECT_EQ(trace->tokens, (std::vector<std::vector<Token>>{{4, 5}, {9}}));
}

TEST(Trace, ReadsVerlsTextsIfToldTheirLengthPerToken) {
  const std::string row =
      R"({"input": "12345678", "output": "123456789012", "gts": "", "score": 1.0, "step": 1})";
  EXPECT_THAT(error_of(row), HasSubstr("trace.chars_per_token"));
  const auto trace = parse_trace({.chars_per_token = 4.0}, row, "t.jsonl");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->groups[0].samples[0].true_tokens, 3);
  EXPECT_EQ(trace->groups[0].prompt_tokens, 2);
}

TEST(Trace, NamesLineAndFieldOfWhatIsWrong) {
  EXPECT_THAT(error_of(""), HasSubstr("no rows"));
  EXPECT_THAT(error_of("{\"prompt_id\": 1, \"length\": 3}\nnonsense\n"),
              ::testing::AllOf(HasSubstr("t.jsonl:2"), HasSubstr("JSON")));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": -3})"),
              ::testing::AllOf(HasSubstr("t.jsonl:1"), HasSubstr("-3"), HasSubstr("from 1")));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": 1.5})"), HasSubstr("1.5"));
  EXPECT_THAT(error_of(R"({"length": 3})"), HasSubstr("prompt_id"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "sample": -1, "length": 3})"), HasSubstr("sample is -1"));
  EXPECT_THAT(error_of("{\"prompt_id\": 1, \"sample\": 0, \"length\": 3}\n"
                       "{\"prompt_id\": 1, \"sample\": 0, \"length\": 3}"),
              HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": 9})", {.max_new_tokens = 8}),
              HasSubstr("trace.max_new_tokens = 8"));
}

TEST(Trace, DeepNestingIsAnErrorOfItsLine) {
  const std::string deep(100000, '[');
  EXPECT_THAT(error_of("{\"prompt_id\": 1, \"length\": 3}\n{\"prompt_id\": " + deep), HasSubstr("t.jsonl:2"));
}

TEST(Trace, TextsOfAbsurdlyManyTokensAreRefused) {
  const std::string row = R"({"input": "12345678", "output": "123456789012"})";
  EXPECT_THAT(error_of(row, {.chars_per_token = 1e-300}), HasSubstr("raise trace.chars_per_token"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": 4294967297})"), HasSubstr("length is 4294967297"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": 18446744073709551615})"), HasSubstr("length is 1844"));
}

TEST(Trace, FieldsThatContradictEachOtherAreRefused) {
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": 3, "response_length": 4})"),
              HasSubstr("response_length"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "length": 3, "response_tokens": [1, 2]})"),
              HasSubstr("response_tokens has 2 tokens"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "prompt_length": 2, "prompt_tokens": [1], "length": 3})"),
              HasSubstr("prompt_tokens has 1 tokens"));
  EXPECT_THAT(error_of(R"({"group_index": 1, "tokens": [1, 2], "response_length": 3})"),
              HasSubstr("tokens has 2 tokens, but the response alone 3"));
  EXPECT_THAT(error_of(R"({"prompt_id": 1, "response_tokens": [1, -2]})"), HasSubstr("no token id"));
  EXPECT_THAT(error_of("{\"prompt_id\": 1, \"prompt_length\": 5, \"length\": 3}\n"
                       "{\"prompt_id\": 1, \"prompt_length\": 6, \"length\": 3}"),
              ::testing::AllOf(HasSubstr("t.jsonl:2"), HasSubstr("6 tokens here and 5")));
}

TEST(Trace, SaysWhichSampleIsMissing) {
  EXPECT_THAT(error_of("{\"prompt_id\": 1, \"sample\": 0, \"length\": 3}\n"
                       "{\"prompt_id\": 1, \"sample\": 1, \"length\": 3}\n"
                       "{\"prompt_id\": 2, \"sample\": 1, \"length\": 3}\n"),
              ::testing::AllOf(HasSubstr("prompt 2"), HasSubstr("line 3"), HasSubstr("sample 0 is missing")));
}

}  // namespace
}  // namespace rondo::sim
