#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace rondo::text {
namespace {

// 2^16 slots of 64 bytes: the frequent words of a corpus many times over.
constexpr int kCacheSlotBits = 16;

struct TokenEntry {
  std::string name;
  std::string bytes;  // what it decodes to
  bool exists = false;
  bool special = false;
};

// A name outside the byte-level alphabet decodes to itself.
std::string bytes_of(const std::string& name) {
  return from_alphabet(name).value_or(name);
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<TokenEntry> tokens;
  std::unordered_map<std::string, Token> ids;
  bool nfc = false;
  AddedTokenMatcher raw_added, normalized_added;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  std::vector<Token> prefix, suffix;
  mutable WordCache cache{kCacheSlotBits};

  Impl(PreTokenizer pre, Bpe model) : pre_tokenizer(std::move(pre)), bpe(std::move(model)) {}

  TokenEntry& entry(Token id);
  Result<void> add_token(const AddedTokenSpec& token, Token& next_id);
  Result<void> check_template() const;
  void encode_word(std::string_view word, Bpe::Scratch& scratch, std::vector<Token>& out) const;
  const TokenEntry* find(Token id) const;
};

TokenEntry& Tokenizer::Impl::entry(Token id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens.size()) tokens.resize(index + 1);
  return tokens[index];
}

// An added token has the id of its name in the vocabulary or, if it has none, the next free one. A file that
// says otherwise would mean one thing here and another elsewhere.
Result<void> Tokenizer::Impl::add_token(const AddedTokenSpec& token, Token& next_id) {
  const auto known = ids.find(token.content);
  const Token id = known != ids.end() ? known->second : next_id;
  if (token.id != id)
    return fail(Code::kDataLoss, "added_tokens gives \"{}\" the id {}, but by the vocabulary it is {}",
                token.content, token.id, id);
  if (known == ids.end()) {
    ids.emplace(token.content, id);
    ++next_id;
  }
  TokenEntry& slot = entry(id);
  if (slot.exists && slot.name != token.content)
    return fail(Code::kDataLoss, "added_tokens gives \"{}\" the id {}, which is \"{}\" in the vocabulary",
                token.content, id, slot.name);
  const std::string pattern = token.normalized && nfc ? to_nfc(token.content) : token.content;
  slot = {token.content, bytes_of(pattern), true, slot.special || token.special};
  (token.normalized ? normalized_added : raw_added).add(pattern, token);
  return {};
}

Result<void> Tokenizer::Impl::check_template() const {
  for (const auto* list : {&prefix, &suffix})
    for (const Token id : *list)
      if (find(id) == nullptr)
        return fail(Code::kDataLoss, "post_processor adds the id {}, which is not in the vocabulary", id);
  return {};
}

const TokenEntry* Tokenizer::Impl::find(Token id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return nullptr;
  const TokenEntry& found = tokens[static_cast<std::size_t>(id)];
  return found.exists ? &found : nullptr;
}

void Tokenizer::Impl::encode_word(std::string_view word, Bpe::Scratch& scratch,
                                  std::vector<Token>& out) const {
  const auto key = WordCache::key_of(word);
  if (key && cache.find(*key, out)) return;
  const std::size_t before = out.size();
  bpe.encode(word, scratch, out);
  if (key) cache.insert(*key, out.data() + before, out.size() - before);
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<const Tokenizer>> Tokenizer::from_file(const std::filesystem::path& path) {
  RONDO_ASSIGN_CTX(const std::string json, read_file(path), "reading the tokenizer");
  RONDO_ASSIGN_CTX(auto tokenizer, from_json(json), path.string());
  return tokenizer;
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json) {
  RONDO_ASSIGN(const TokenizerSpec spec, parse_tokenizer_json(json));
  RONDO_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::create(spec.pre_tokenizer));
  RONDO_ASSIGN(Bpe bpe, Bpe::create(spec));
  auto impl = std::make_unique<Impl>(std::move(pre_tokenizer), std::move(bpe));
  impl->nfc = spec.nfc;
  impl->prefix = spec.prefix;
  impl->suffix = spec.suffix;
  impl->ids.reserve(spec.vocab.size() + spec.added_tokens.size());
  for (const auto& [name, id] : spec.vocab) {
    impl->ids.emplace(name, id);
    impl->entry(id) = {name, bytes_of(name), true, false};
  }
  auto next_id = static_cast<Token>(spec.vocab.size());
  for (const AddedTokenSpec& token : spec.added_tokens) RONDO_TRY(impl->add_token(token, next_id));
  RONDO_TRY(impl->check_template());
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  RONDO_CHECK_LT(text.size(), std::size_t{std::numeric_limits<std::int32_t>::max()});
  std::string repaired;
  if (valid_prefix(text) < text.size()) {
    append_lossy(text, repaired);
    text = repaired;
  }
  std::vector<Token> out;
  out.reserve(text.size() / 4 + 8);
  if (options.add_special_tokens) out.insert(out.end(), impl_->prefix.begin(), impl_->prefix.end());

  Bpe::Scratch scratch;
  const PreTokenizer::Sink on_word = [&](std::string_view word) { impl_->encode_word(word, scratch, out); };
  const auto on_token = [&](Token id) { out.push_back(id); };
  const AddedTokenMatcher::Sink on_normalized = {
      [&](std::string_view part) { impl_->pre_tokenizer.split(part, on_word); }, on_token};
  const AddedTokenMatcher::Sink on_raw = {
      [&](std::string_view part) {
        const std::string normalized = impl_->nfc ? to_nfc(part) : std::string();
        impl_->normalized_added.split(impl_->nfc ? normalized : part, options.parse_special, on_normalized);
      },
      on_token};
  impl_->raw_added.split(text, options.parse_special, on_raw);

  if (options.add_special_tokens) out.insert(out.end(), impl_->suffix.begin(), impl_->suffix.end());
  return out;
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special) const {
  std::string bytes;
  for (const Token id : tokens)
    if (!(skip_special && is_special(id))) bytes.append(token_bytes(id));
  if (valid_prefix(bytes) == bytes.size()) return bytes;
  std::string text;
  append_lossy(bytes, text);
  return text;
}

std::string_view Tokenizer::token_bytes(Token id) const {
  const TokenEntry* entry = impl_->find(id);
  return entry == nullptr ? std::string_view() : entry->bytes;
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(impl_->tokens.size());
}

std::optional<Token> Tokenizer::token_to_id(std::string_view name) const {
  const auto found = impl_->ids.find(std::string(name));
  if (found == impl_->ids.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> Tokenizer::id_to_token(Token id) const {
  const TokenEntry* entry = impl_->find(id);
  if (entry == nullptr) return std::nullopt;
  return entry->name;
}

bool Tokenizer::is_special(Token id) const {
  const TokenEntry* entry = impl_->find(id);
  return entry != nullptr && entry->special;
}

}  // namespace rondo::text
