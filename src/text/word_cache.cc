#include "text/word_cache.h"

#include <algorithm>
#include <cstring>

namespace rondo::text {

std::optional<WordCache::Key> WordCache::key_of(std::string_view word) {
  if (word.empty() || word.size() > kMaxBytes) return std::nullopt;
  Key key;
  std::memcpy(key.words.data(), word.data(), word.size());
  key.size = word.size();
  return key;
}

std::size_t WordCache::home_of(const Key& key) const {
  std::uint64_t hash = (key.words[0] + key.size) * 0x9E3779B97F4A7C15ULL;
  hash = ((hash ^ hash >> 29) + key.words[1]) * 0xBF58476D1CE4E5B9ULL;
  hash = ((hash ^ hash >> 32) + key.words[2]) * 0x94D049BB133111EBULL;
  return static_cast<std::size_t>(hash >> 32) & (slots_.size() - 1);
}

// Loads are acquire and stores release, so that a reader that sees any word of a write also sees the odd
// counter that went before it: the second look at the counter then differs from the first.
bool WordCache::read(const Slot& slot, const Key& key, std::vector<Token>& out) {
  const std::uint64_t before = slot.sequence.load(std::memory_order_acquire);
  const std::uint64_t sizes = slot.sizes.load(std::memory_order_acquire);
  bool same = (before & 1) == 0 && (sizes & 0xFF) == key.size;
  for (std::size_t i = 0; i < 3; ++i) same &= slot.word[i].load(std::memory_order_acquire) == key.words[i];
  if (!same) return false;
  std::array<std::uint64_t, 3> packed;
  for (std::size_t i = 0; i < 3; ++i) packed[i] = slot.ids[i].load(std::memory_order_acquire);
  if (slot.sequence.load(std::memory_order_relaxed) != before) return false;
  std::array<Token, kMaxIds> ids;
  std::memcpy(ids.data(), packed.data(), sizeof packed);
  out.insert(out.end(), ids.data(), ids.data() + (sizes >> 8));
  return true;
}

bool WordCache::find(const Key& key, std::vector<Token>& out) const {
  const std::size_t home = home_of(key);
  return read(slots_[home], key, out) || read(slots_[home ^ 1], key, out);
}

void WordCache::insert(const Key& key, const Token* ids, std::size_t count) {
  if (count > kMaxIds) return;
  const std::size_t home = home_of(key);
  const auto is_empty = [this](std::size_t i) {
    return slots_[i].sizes.load(std::memory_order_relaxed) == 0;
  };
  Slot& slot = slots_[!is_empty(home) && is_empty(home ^ 1) ? home ^ 1 : home];
  std::uint64_t sequence = slot.sequence.load(std::memory_order_relaxed);
  if ((sequence & 1) != 0 ||
      !slot.sequence.compare_exchange_strong(sequence, sequence + 1, std::memory_order_acquire))
    return;
  std::array<Token, kMaxIds> padded{};
  std::copy_n(ids, count, padded.begin());
  std::array<std::uint64_t, 3> packed;
  std::memcpy(packed.data(), padded.data(), sizeof packed);
  slot.sizes.store(key.size | static_cast<std::uint64_t>(count) << 8, std::memory_order_release);
  for (std::size_t i = 0; i < 3; ++i) slot.word[i].store(key.words[i], std::memory_order_release);
  for (std::size_t i = 0; i < 3; ++i) slot.ids[i].store(packed[i], std::memory_order_release);
  slot.sequence.store(sequence + 2, std::memory_order_release);
}

}  // namespace rondo::text
