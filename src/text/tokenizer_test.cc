#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "text/incremental_decoder.h"
#include "text/tokenizer_fixture.h"
#include "text/utf8.h"

namespace rondo::text {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<Token>;

std::unique_ptr<const Tokenizer> make(std::string_view patch = "{}") {
  auto tokenizer = Tokenizer::from_json(fixture_json(patch));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

std::string added_tokens(std::string_view flags) {
  return R"({"added_tokens": [{"id": 266, "content": "<|end|>", )" + std::string(flags) + "}]}";
}

TEST(TokenizerTest, EncodesByHandComputedMerges) {
  const auto tokenizer = make();
  EXPECT_EQ(tokenizer->encode("hello the"), (Tokens{261, 259}));
  EXPECT_EQ(tokenizer->encode("hells"), (Tokens{260, 's'}));
  EXPECT_EQ(tokenizer->encode("\u00e9\u20ac"), (Tokens{262, 264}));
  EXPECT_EQ(tokenizer->encode(""), Tokens());
}

TEST(TokenizerTest, CutsAddedTokensOutOfTheText) {
  const auto tokenizer = make();
  EXPECT_EQ(tokenizer->encode("he<|end|><tool>ll"), (Tokens{256, kFixtureEnd, kFixtureTool, 257}));
  EXPECT_EQ(tokenizer->encode("<|end|", {}).size(), 6u);
}

TEST(TokenizerTest, SpecialTokensCanBePlainText) {
  const auto tokenizer = make();
  EXPECT_EQ(tokenizer->encode("<|end|><tool>", {.parse_special = false}),
            (Tokens{'<', '|', 'e', 'n', 'd', '|', '>', kFixtureTool}));
}

TEST(TokenizerTest, HonoursTheFlagsOfAddedTokens) {
  EXPECT_EQ(make(added_tokens(R"("single_word": true)"))->encode("h<|end|> <|end|>").back(), kFixtureEnd);
  EXPECT_EQ(make(added_tokens(R"("single_word": true)"))->encode("h<|end|> l").size(), 10u);
  EXPECT_EQ(make(added_tokens(R"("lstrip": true)"))->encode("h \n<|end|> l"),
            (Tokens{'h', kFixtureEnd, ' ', 'l'}));
  EXPECT_EQ(make(added_tokens(R"("rstrip": true)"))->encode("h <|end|>\t l"),
            (Tokens{'h', ' ', kFixtureEnd, 'l'}));
}

TEST(TokenizerTest, NormalizedTokensAreFoundInNormalisedText) {
  const std::string patch =
      R"({"normalizer": {"type": "NFC"},
          "added_tokens": [{"id": 266, "content": "\u00e9!", "normalized": true},
                           {"id": 267, "content": "e\u0301?", "normalized": false}]})";
  const auto tokenizer = make(patch);
  EXPECT_EQ(tokenizer->encode("e\u0301!"), (Tokens{266}));
  EXPECT_EQ(tokenizer->encode("e\u0301?"), (Tokens{267}));
  EXPECT_EQ(tokenizer->encode("\u00e9?"), (Tokens{262, '?'}));
}

TEST(TokenizerTest, TheTemplateAddsItsTokensOnlyWhenAsked) {
  const auto tokenizer = make(R"({"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
       {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}],
       "special_tokens": {"<|end|>": {"ids": [266]}, "x": {"ids": [267, 266]}}}]}})");
  EXPECT_EQ(tokenizer->encode("he"), (Tokens{256}));
  EXPECT_EQ(tokenizer->encode("he", {.add_special_tokens = true}), (Tokens{266, 256, 267, 266}));
}

TEST(TokenizerTest, IllFormedInputCountsAsReplacementCharacters) {
  const auto tokenizer = make();
  EXPECT_EQ(tokenizer->encode("a\xE2\x82z\xFF"), tokenizer->encode("a\uFFFDz\uFFFD"));
}

TEST(TokenizerTest, DecodesHalfCharactersToReplacements) {
  const auto tokenizer = make();
  EXPECT_EQ(tokenizer->decode(Tokens{263, 0xAC, kFixtureEnd, 263}, false), "\u20ac<|end|>\uFFFD");
  EXPECT_EQ(tokenizer->decode(Tokens{263, 0xAC, kFixtureEnd, 263}, true), "\u20ac\uFFFD");
  EXPECT_EQ(tokenizer->decode(Tokens{-1, 'a', 268, 1 << 30}, false), "a");
}

TEST(TokenizerTest, NamesTokens) {
  const auto tokenizer = make();
  EXPECT_EQ(tokenizer->vocab_size(), 268);
  EXPECT_EQ(tokenizer->token_to_id("\u0120the"), 259);
  EXPECT_EQ(tokenizer->token_to_id("<|end|>"), kFixtureEnd);
  EXPECT_EQ(tokenizer->token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(259), "\u0120the");
  EXPECT_EQ(tokenizer->id_to_token(268), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(259), " the");
  EXPECT_TRUE(tokenizer->is_special(kFixtureEnd));
  EXPECT_FALSE(tokenizer->is_special(kFixtureTool));
  EXPECT_FALSE(tokenizer->is_special(5000));
}

TEST(TokenizerTest, BothMergeFormatsMeanTheSame) {
  const std::string old_format = R"({"model": {"merges": ["h e", "l l", "he ll"]}})";
  const std::string new_format = R"({"model": {"merges": [["h", "e"], ["l", "l"], ["he", "ll"]]}})";
  EXPECT_EQ(make(old_format)->encode("hello"), (Tokens{260, 'o'}));
  EXPECT_EQ(make(new_format)->encode("hello"), (Tokens{260, 'o'}));
}

struct Refusal {
  const char* patch;
  Code code;
  const char* named;  // must stand in the message
};

class TokenizerRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(TokenizerRefusalTest, NamesTheField) {
  const auto tokenizer = Tokenizer::from_json(fixture_json(GetParam().patch));
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().code(), GetParam().code) << tokenizer.error().to_string();
  EXPECT_THAT(tokenizer.error().message(), HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(
    TokenizerTest, TokenizerRefusalTest,
    testing::Values(
        Refusal{R"({"version": "2.0"})", Code::kUnsupported, "version"},
        Refusal{R"({"model": {"type": "Unigram"}})", Code::kUnsupported, "model.type"},
        Refusal{R"({"model": {"byte_fallback": true}})", Code::kUnsupported, "model.byte_fallback"},
        Refusal{R"({"model": {"dropout": 0.1}})", Code::kUnsupported, "model.dropout"},
        Refusal{R"({"model": {"end_of_word_suffix": "</w>"}})", Code::kUnsupported,
                "model.end_of_word_suffix"},
        Refusal{R"({"model": {"ignore_merge": true}})", Code::kUnsupported, "ignore_merges"},
        Refusal{R"({"model": {"unk_token": "<unk>"}})", Code::kDataLoss, "model.unk_token"},
        Refusal{R"({"model": {"vocab": {"zz": 3}}})", Code::kDataLoss, "model.vocab gives id 3"},
        Refusal{R"({"model": {"vocab": {"zz": -1}}})", Code::kDataLoss, "model.vocab[\"zz\"]"},
        Refusal{R"({"model": {"vocab": {"zz": 4194304}}})", Code::kDataLoss, "model.vocab[\"zz\"]"},
        Refusal{R"({"model": {"vocab": {"zz": 1.5}}})", Code::kDataLoss, "model.vocab[\"zz\"]"},
        Refusal{R"({"model": {"merges": ["a b c"]}})", Code::kDataLoss, "model.merges[0]"},
        Refusal{R"({"model": {"merges": [["z", "z"]]}})", Code::kDataLoss, "model.merges[0]"},
        Refusal{R"({"model": {"merges": [["a"]]}})", Code::kDataLoss, "model.merges[0]"},
        Refusal{R"({"model": null})", Code::kDataLoss, "model"},
        Refusal{R"({"normalizer": {"type": "NFKC"}})", Code::kUnsupported, "normalizer.type"},
        Refusal{R"({"pre_tokenizer": null})", Code::kDataLoss, "pre_tokenizer"},
        Refusal{R"({"pre_tokenizer": {"type": "Metaspace"}})", Code::kUnsupported, "pre_tokenizer.type"},
        Refusal{R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": []}})", Code::kUnsupported,
                "ByteLevel"},
        Refusal{
            R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]}})",
            Code::kUnsupported, "pre_tokenizer.pretokenizers[1]"},
        Refusal{
            R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Removed",
                    "pattern": {"Regex": "a"}}]}})",
            Code::kUnsupported, "behavior"},
        Refusal{
            R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
                    "pattern": {"Regex": "\\w"}}, {"type": "ByteLevel"}]}})",
            Code::kUnsupported, "Split"},
        Refusal{R"({"post_processor": {"type": "BertProcessing"}})", Code::kUnsupported,
                "post_processor.type"},
        Refusal{
            R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
                    "special_tokens": {}}})",
            Code::kDataLoss, "post_processor.special_tokens.x"},
        Refusal{R"({"post_processor": {"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [999]}},
                    "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}]}})",
                Code::kDataLoss, "999"},
        Refusal{R"({"decoder": {"type": "WordPiece"}})", Code::kUnsupported, "decoder.type"},
        Refusal{R"({"decoder": null})", Code::kDataLoss, "decoder"},
        Refusal{R"({"added_tokens": [{"id": 300, "content": "<new>"}]})", Code::kDataLoss, "<new>"},
        Refusal{R"({"added_tokens": [{"id": 7, "content": "he"}]})", Code::kDataLoss, "he"},
        Refusal{R"({"added_tokens": [{"id": 266, "content": 5}]})", Code::kDataLoss,
                "added_tokens[0].content"},
        Refusal{R"({"added_tokens": [{"id": 266, "content": "x", "lstrip": 1}]})", Code::kDataLoss,
                "lstrip"}));

TEST(TokenizerTest, RefusesWhatIsNoTokenizer) {
  EXPECT_EQ(Tokenizer::from_json("{").error().code(), Code::kDataLoss);
  EXPECT_EQ(Tokenizer::from_json("[]").error().code(), Code::kDataLoss);
  EXPECT_THAT(Tokenizer::from_file("/nowhere/tokenizer.json").error().message(),
              HasSubstr("/nowhere/tokenizer.json"));
}

TEST(TokenizerTest, RefusesNestingMadeToExhaustTheStack) {
  std::string open;
  std::string close;
  for (int i = 0; i < 1000; ++i) {
    open += R"({"type": "Sequence", "pretokenizers": [)";
    close += "]}";
  }
  const auto deep = Tokenizer::from_json(fixture_json(R"({"pre_tokenizer": )" + open + close + "}"));
  ASSERT_FALSE(deep.has_value());
  EXPECT_EQ(deep.error().code(), Code::kUnsupported);
  EXPECT_THAT(deep.error().message(), HasSubstr("nested too deeply"));
}

RC_GTEST_PROP(TokenizerTest, DecodeInvertsEncode, (const std::string& bytes)) {
  static const auto tokenizer = make();
  std::string text;
  append_lossy(bytes, text);
  RC_ASSERT(tokenizer->decode(tokenizer->encode(bytes), false) == text);
}

RC_GTEST_PROP(TokenizerTest, IncrementalPiecesJoinToTheWhole, (bool skip_special)) {
  static const auto tokenizer = make();
  const auto tokens = *rc::gen::container<Tokens>(rc::gen::oneOf(
      rc::gen::inRange<Token>(0x7E, 270), rc::gen::elementOf(Tokens{262, 263, 264, 265, 0x98, 0x80})));
  IncrementalDecoder decoder(*tokenizer, skip_special);
  std::string joined;
  for (const Token token : tokens) {
    const std::string piece = decoder.feed(token);
    RC_ASSERT(valid_prefix(piece) == piece.size());
    joined += piece;
  }
  joined += decoder.finish();
  RC_ASSERT(joined == tokenizer->decode(tokens, skip_special));
}

TEST(TokenizerTest, IncrementalDecoderHoldsHalfACharacterBack) {
  const auto tokenizer = make();
  IncrementalDecoder decoder(*tokenizer, true);
  EXPECT_EQ(decoder.feed('a'), "a");
  EXPECT_EQ(decoder.feed(263), "");
  EXPECT_EQ(decoder.feed(kFixtureEnd), "");
  EXPECT_EQ(decoder.feed(0xAC), "\u20ac");
  EXPECT_EQ(decoder.feed(265), "");
  EXPECT_EQ(decoder.feed('b'), "\uFFFDb");
  EXPECT_EQ(decoder.feed(263), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const auto tokenizer = make();
  const std::string text = "hello the hello, 123 \u20ac the\n  hells<|end|>\u00e9 the";
  const Tokens expected = make()->encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) count += tokenizer->encode(text) == expected ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace rondo::text
