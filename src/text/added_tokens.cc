#include "text/added_tokens.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace rondo::text {
namespace {

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin > 0 && is_word_char(code_point_before(text.data(), text.data() + begin).value);
  const bool after = end < text.size() && is_word_char(code_point_at(text.data() + end).value);
  return before || after;
}

std::size_t skip_spaces_back(std::string_view text, std::size_t from, std::size_t limit) {
  while (from > limit) {
    const CodePoint point = code_point_before(text.data(), text.data() + from);
    if (!is_white_space(point.value)) break;
    from -= point.size;
  }
  return from;
}

std::size_t skip_spaces(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    const CodePoint point = code_point_at(text.data() + from);
    if (!is_white_space(point.value)) break;
    from += point.size;
  }
  return from;
}

}  // namespace

void AddedTokenMatcher::add(std::string_view pattern, const AddedTokenSpec& token) {
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  std::int32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t child = child_of(node, byte);
    if (child < 0) {
      child = static_cast<std::int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<std::size_t>(node)];
      const std::int32_t sibling = parent.child;
      parent.child = child;
      nodes_.push_back({byte, -1, -1, sibling});
    }
    node = child;
  }
  nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(flags_.size());
  flags_.push_back({token.id, token.single_word, token.lstrip, token.rstrip, token.special});
}

std::int32_t AddedTokenMatcher::child_of(std::int32_t node, unsigned char byte) const {
  std::int32_t child = nodes_[static_cast<std::size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<std::size_t>(child)].byte != byte)
    child = nodes_[static_cast<std::size_t>(child)].sibling;
  return child;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Match match{begin, begin, -1};
    std::int32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = child_of(node, static_cast<unsigned char>(text[at]));
      if (node < 0) break;
      const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
      if (token >= 0) match = {begin, at + 1, token};
    }
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special, const Sink& sink) const {
  std::size_t done = 0;  // up to here everything has gone to the sink
  for (std::size_t from = 0; from < text.size();) {
    const Match match = find(text, from);
    if (match.token < 0) break;
    from = match.end;
    // A match that does not count still uses up its bytes: no shorter one inside it is looked for.
    const Flags& flags = flags_[static_cast<std::size_t>(match.token)];
    if (flags.special && !parse_special) continue;
    if (flags.single_word && touches_word(text, match.begin, match.end)) continue;
    const std::size_t begin = flags.lstrip ? skip_spaces_back(text, match.begin, done) : match.begin;
    if (begin > done) sink.on_text(text.substr(done, begin - done));
    sink.on_token(flags.id);
    done = flags.rstrip ? skip_spaces(text, match.end) : match.end;
  }
  if (done < text.size()) sink.on_text(text.substr(done));
}

}  // namespace rondo::text
