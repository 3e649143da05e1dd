// What a tokenizer.json says, as plain values.
//
// The file is one JSON object; of it is read (all else in it does not change which ids come out):
//   version         "1.0"
//   added_tokens    [{id, content, single_word, lstrip, rstrip, normalized, special}]
//   normalizer      null | {type: "NFC"} | {type: "Sequence", normalizers: […]}
//   pre_tokenizer   {type: "ByteLevel", add_prefix_space, use_regex}
//                   | {type: "Digits", individual_digits}
//                   | {type: "Split", pattern: {Regex | String: "…"}, behavior: "Isolated"}
//                   | {type: "Sequence", pretokenizers: […]}; exactly one ByteLevel, at the end
//   post_processor  null | {type: "ByteLevel"} | {type: "TemplateProcessing", single, special_tokens}
//                   | {type: "Sequence", processors: […]}
//   decoder         {type: "ByteLevel"}
//   model           {type: "BPE", vocab: {token: id}, merges: ["a b" | ["a", "b"]], unk_token, fuse_unk,
//                    ignore_merges}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/status.h"

namespace rondo::text {

/// Splits at each match of `pattern`; matches and what lies between them are pieces.
struct SplitStep {
  std::string pattern;
  bool literal = false;  // a plain string, not a regular expression
};

/// Splits numbers from the rest.
struct DigitsStep {
  bool individual = false;  // each digit alone
};

/// Ends every pipeline: optionally a leading space and GPT-2's regular expression.
struct ByteLevelStep {
  bool add_prefix_space = false;
  bool use_regex = true;
};

using PreTokenizerStep = std::variant<SplitStep, DigitsStep, ByteLevelStep>;

/// A token that is cut out of the text before anything else looks at it.
struct AddedTokenSpec {
  Token id = -1;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = true;    // looked for in the normalised text
  bool special = false;      // left out by decode when asked
};

struct TokenizerSpec {
  std::vector<std::pair<std::string, Token>> vocab;         // ids are distinct and below kMaxTokenId
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool ignore_merges = false;
  bool nfc = false;
  std::vector<PreTokenizerStep> pre_tokenizer;  // the last one is a ByteLevelStep
  std::vector<Token> prefix, suffix;            // what the template adds around a text
  std::vector<AddedTokenSpec> added_tokens;
};

/// Ids beyond this are taken for a corrupt file.
inline constexpr Token kMaxTokenId = 1 << 22;

/// Reads the text of a tokenizer.json. kDataLoss if it is not what it claims to be, kUnsupported for a
/// tokenizer of another kind; both name the field. Does not check that merges and tokens are in the
/// vocabulary.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view json);

}  // namespace rondo::text
