// Byte-pair encoding of one word: bytes to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace rondo::text {

/// Merges the bytes of a word by rank, as the vocabulary's merges say.
///
/// Does not split text into words and does not know added tokens. Immutable; any thread, each with its own
/// Scratch.
class Bpe final {
 public:
  /// Working memory of `encode`, reused between words.
  struct Scratch {
    struct Symbol {
      Token id;
      std::int32_t prev, next;  // -1 at the ends
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t position;
      Token merged;
    };
    std::vector<Token> ids;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// kDataLoss if a merge or unk_token is not in the vocabulary.
  static Result<Bpe> create(const TokenizerSpec& spec);

  /// Appends the ids of `word`. O(n log n) in the length of the word. A byte without a token gives unk_token,
  /// or nothing if there is none. Precondition: word.size() < 2^31.
  void encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const;

 private:
  struct Merge {
    std::uint64_t pair;  // left id, right id; kNoPair in a free slot
    std::uint32_t rank;
    Token merged;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  Bpe() = default;
  Result<void> index_merges(const TokenizerSpec& spec);
  void insert(const Merge& merge);
  std::size_t slot_of(std::uint64_t pair) const;
  const Merge* find(Token left, Token right) const;
  void to_ids(std::string_view word, std::vector<Token>& ids) const;
  void merge_by_scan(std::vector<Token>& ids) const;
  void merge_by_heap(Scratch& scratch) const;
  static void link_symbols(Scratch& scratch);
  bool add_candidate(Scratch& scratch, std::int32_t position) const;
  bool merge_at(Scratch& scratch, std::int32_t position, Token merged) const;

  std::vector<Merge> merges_;  // open addressing, a power of two, at most half full
  int merges_shift_ = 63;      // 64 - log2(size)
  Token byte_ids_[256];        // -1: the vocabulary lacks the byte
  std::optional<Token> unk_id_;
  bool fuse_unk_ = false;
  std::unordered_map<std::string, Token> whole_words_;  // by their bytes; filled for ignore_merges only
};

}  // namespace rondo::text
