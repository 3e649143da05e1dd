// Finds added tokens in text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "text/tokenizer_spec.h"

namespace rondo::text {

/// Cuts text at a fixed set of added tokens: the leftmost match first, the longest of those that start there.
///
/// Does not normalise. Immutable; any thread.
class AddedTokenMatcher final {
 public:
  struct Sink {
    std::function<void(std::string_view)> on_text;  // never empty
    std::function<void(Token)> on_token;
  };

  /// `pattern` is what is looked for; it may differ from token.content by normalisation. Not empty.
  void add(std::string_view pattern, const AddedTokenSpec& token);

  bool empty() const { return flags_.empty(); }

  /// Calls `sink` with the parts of `text` (valid UTF-8) in order. Special tokens are taken for plain text
  /// unless `parse_special`.
  void split(std::string_view text, bool parse_special, const Sink& sink) const;

 private:
  struct Node {
    unsigned char byte = 0;
    std::int32_t token = -1;  // index into flags_, if a pattern ends here
    std::int32_t child = -1;
    std::int32_t sibling = -1;
  };
  struct Flags {
    Token id;
    bool single_word, lstrip, rstrip, special;
  };
  struct Match {
    std::size_t begin, end;
    std::int32_t token;  // -1: none
  };

  std::int32_t child_of(std::int32_t node, unsigned char byte) const;
  Match find(std::string_view text, std::size_t from) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);  // the root
  std::array<bool, 256> starts_{};
  std::vector<Flags> flags_;
};

}  // namespace rondo::text
