#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "text/byte_alphabet.h"

namespace rondo::text {
namespace {

// Up to here a quadratic search over a small array is faster than a heap.
constexpr std::size_t kScanLimit = 48;
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

using Vocab = std::unordered_map<std::string_view, Token>;

std::uint64_t pair_of(Token left, Token right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

Result<Token> id_in(const Vocab& vocab, std::string_view token, std::string_view field) {
  const auto found = vocab.find(token);
  if (found == vocab.end())
    return fail(Code::kDataLoss, "{} uses the token \"{}\", which model.vocab does not have", field, token);
  return found->second;
}

// Best rank first, then leftmost: the heap's top.
bool comes_later(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

Result<Bpe> Bpe::create(const TokenizerSpec& spec) {
  Bpe bpe;
  const Vocab vocab(spec.vocab.begin(), spec.vocab.end());
  std::fill(std::begin(bpe.byte_ids_), std::end(bpe.byte_ids_), Token{-1});
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    if (const auto found = vocab.find(to_alphabet({&raw, 1})); found != vocab.end())
      bpe.byte_ids_[byte] = found->second;
  }
  if (spec.unk_token) {
    RONDO_ASSIGN(bpe.unk_id_, id_in(vocab, *spec.unk_token, "model.unk_token"));
  }
  bpe.fuse_unk_ = spec.fuse_unk;
  if (spec.ignore_merges)
    for (const auto& [token, id] : spec.vocab)
      if (auto bytes = from_alphabet(token)) bpe.whole_words_.emplace(std::move(*bytes), id);
  RONDO_TRY(bpe.index_merges(spec));
  return bpe;
}

Result<void> Bpe::index_merges(const TokenizerSpec& spec) {
  const Vocab vocab(spec.vocab.begin(), spec.vocab.end());
  int bits = 1;
  while ((std::size_t{1} << bits) < 2 * spec.merges.size()) ++bits;
  merges_.assign(std::size_t{1} << bits, Merge{kNoPair, 0, 0});
  merges_shift_ = 64 - bits;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    const std::string field = fmt::format("model.merges[{}]", i);
    RONDO_ASSIGN(const Token left_id, id_in(vocab, left, field));
    RONDO_ASSIGN(const Token right_id, id_in(vocab, right, field));
    RONDO_ASSIGN(const Token merged, id_in(vocab, left + right, field));
    insert({pair_of(left_id, right_id), static_cast<std::uint32_t>(i), merged});
  }
  return {};
}

// The slot that holds the pair, or the free one where it would go.
std::size_t Bpe::slot_of(std::uint64_t pair) const {
  const std::size_t mask = merges_.size() - 1;
  std::size_t slot = static_cast<std::size_t>(pair * 0x9E3779B97F4A7C15ULL >> merges_shift_);
  while (merges_[slot].pair != pair && merges_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

// A pair listed twice counts with its later rank.
void Bpe::insert(const Merge& merge) {
  merges_[slot_of(merge.pair)] = merge;
}

const Bpe::Merge* Bpe::find(Token left, Token right) const {
  const Merge& merge = merges_[slot_of(pair_of(left, right))];
  return merge.pair == kNoPair ? nullptr : &merge;
}

void Bpe::to_ids(std::string_view word, std::vector<Token>& ids) const {
  ids.clear();
  bool after_unk = false;
  for (const char byte : word) {
    const Token id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (unk_id_ && !(fuse_unk_ && after_unk)) {
      ids.push_back(*unk_id_);
    }
    after_unk = id < 0;
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<Token>& out) const {
  if (!whole_words_.empty()) {
    if (const auto found = whole_words_.find(std::string(word)); found != whole_words_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  to_ids(word, scratch.ids);
  if (scratch.ids.size() <= kScanLimit) {
    merge_by_scan(scratch.ids);
  } else {
    merge_by_heap(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::merge_by_scan(std::vector<Token>& ids) const {
  std::array<std::uint32_t, kScanLimit> ranks;
  std::array<Token, kScanLimit> merged;
  std::size_t size = ids.size();
  const auto look_up = [&](std::size_t i) {
    const Merge* merge = find(ids[i], ids[i + 1]);
    ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    merged[i] = merge == nullptr ? -1 : merge->merged;
  };
  for (std::size_t i = 0; i + 1 < size; ++i) look_up(i);
  while (size > 1) {
    const auto* best = std::min_element(ranks.data(), ranks.data() + size - 1);
    if (*best == kNoRank) break;
    const auto at = static_cast<std::size_t>(best - ranks.data());
    ids[at] = merged[at];
    std::copy(ids.data() + at + 2, ids.data() + size, ids.data() + at + 1);
    std::copy(ranks.data() + at + 1, ranks.data() + size - 1, ranks.data() + at);
    std::copy(merged.data() + at + 1, merged.data() + size - 1, merged.data() + at);
    --size;
    if (at + 1 < size) look_up(at);
    if (at > 0) look_up(at - 1);
  }
  ids.resize(size);
}

// Links the symbols of scratch.ids into a list.
void Bpe::link_symbols(Scratch& scratch) {
  const auto size = static_cast<std::int32_t>(scratch.ids.size());
  scratch.symbols.clear();
  for (std::int32_t i = 0; i < size; ++i)
    scratch.symbols.push_back({scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1});
}

// Appends the merge of the symbol at `position` with the next one to the heap's array, if there is one.
bool Bpe::add_candidate(Scratch& scratch, std::int32_t position) const {
  if (position < 0) return false;
  const Scratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(position)];
  if (left.next < 0) return false;
  const Merge* merge = find(left.id, scratch.symbols[static_cast<std::size_t>(left.next)].id);
  if (merge == nullptr) return false;
  scratch.heap.push_back({merge->rank, position, merge->merged});
  return true;
}

// Merges the symbol at `position` with the next one if that still gives `merged`. A symbol only ever gets
// longer, so a pair that gives another token means that the candidate has expired.
bool Bpe::merge_at(Scratch& scratch, std::int32_t position, Token merged) const {
  auto& symbols = scratch.symbols;
  Scratch::Symbol& left = symbols[static_cast<std::size_t>(position)];
  if (left.id < 0 || left.next < 0) return false;
  Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
  const Merge* merge = find(left.id, right.id);
  if (merge == nullptr || merge->merged != merged) return false;
  left.id = merged;
  left.next = right.next;
  right.id = -1;
  if (right.next >= 0) symbols[static_cast<std::size_t>(right.next)].prev = position;
  return true;
}

void Bpe::merge_by_heap(Scratch& scratch) const {
  auto& heap = scratch.heap;
  RONDO_CHECK_LT(scratch.ids.size(), std::size_t{std::numeric_limits<std::int32_t>::max()});
  link_symbols(scratch);
  heap.clear();
  for (std::size_t i = 0; i < scratch.ids.size(); ++i) add_candidate(scratch, static_cast<std::int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    if (!merge_at(scratch, top.position, top.merged)) continue;
    const std::int32_t before = scratch.symbols[static_cast<std::size_t>(top.position)].prev;
    for (const std::int32_t position : {before, top.position})
      if (add_candidate(scratch, position)) std::push_heap(heap.begin(), heap.end(), comes_later);
  }
  scratch.ids.clear();
  for (std::int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<std::size_t>(i)].next)
    scratch.ids.push_back(scratch.symbols[static_cast<std::size_t>(i)].id);
}

}  // namespace rondo::text
