// Any bytes as tokenizer.json, and any bytes as text: no crash, and what is encoded decodes to the repaired
// text. The input is the file, a zero byte, the text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/incremental_decoder.h"
#include "text/template_form.h"
#include "text/tokenizer.h"
#include "text/tokenizer_fixture.h"

std::vector<std::string> fuzz_seeds() {
  const std::string text = std::string(1, '\0') + "hello the<|end|> \xE2\x82\xAC 12\xFFzz\n\n  {{ a }}";
  const char* split =
      R"({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": "\\s?\\p{L}+|[^\\s]"}, "behavior": "Isolated"},
          {"type": "Digits", "individual_digits": true},
          {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}]},
          "model": {"ignore_merges": true, "merges": ["h e", "l l"]}})";
  const char* processed =
      R"({"post_processor": {"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [266]}},
          "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}]}})";
  return {rondo::text::fixture_json() + text, rondo::text::fixture_json(split) + text,
          rondo::text::fixture_json(processed) + text};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using rondo::text::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  (void)rondo::text::template_form(text);

  static const auto fixture = Tokenizer::from_json(rondo::text::fixture_json());
  const auto ids = (*fixture)->encode(text);
  if ((*fixture)->encode((*fixture)->decode(ids, false)) != ids) std::abort();

  const auto tokenizer = Tokenizer::from_json(input.substr(0, cut));
  if (!tokenizer) return 0;
  const auto tokens = (*tokenizer)->encode(text, {.add_special_tokens = true});
  rondo::text::IncrementalDecoder decoder(**tokenizer, false);
  std::string joined;
  for (const rondo::Token token : tokens) joined += decoder.feed(token);
  joined += decoder.finish();
  if (joined != (*tokenizer)->decode(tokens, false)) std::abort();
  return 0;
}
