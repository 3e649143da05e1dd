#include "text/tokenizer_fixture.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"

namespace rondo::text {

std::string fixture_json(std::string_view patch) {
  using Json = nlohmann::json;
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},    {"l", "l"},       {"t", "he"},      {" ", "the"},         {"he", "ll"},
      {"hell", "o"}, {"\xC3", "\xA9"}, {"\xE2", "\x82"}, {"\xE2\x82", "\xAC"}, {"\xF0", "\x9F"}};
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[to_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  Json pairs = Json::array();
  int next = 256;
  for (const auto& [left, right] : merges) {
    vocab[to_alphabet(left + right)] = next++;
    pairs.push_back({to_alphabet(left), to_alphabet(right)});
  }
  const auto added = [](int id, const char* content, bool special) {
    return Json{{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", !special}, {"special", special}};
  };
  Json document = {
      {"version", "1.0"},
      {"added_tokens", {added(kFixtureEnd, "<|end|>", true), added(kFixtureTool, "<tool>", false)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
  document.merge_patch(Json::parse(patch));
  return document.dump();
}

}  // namespace rondo::text
