// Remembers the ids of short words, for any number of threads at once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/id.h"

namespace rondo::text {

/// A fixed-size, lossy map from words of up to kMaxBytes to at most kMaxIds ids.
///
/// Newer words replace older ones in their slot. Any thread may call either method at any time; nobody waits:
/// a slot is one cache line behind a sequence counter, and a reader that meets a writer reports a miss, a
/// writer that meets a writer gives up. So results depend on the map's function alone, never on timing.
class WordCache final {
 public:
  static constexpr std::size_t kMaxBytes = 24;
  static constexpr std::size_t kMaxIds = 6;

  /// A word in registers; its padding is zero.
  struct Key {
    std::array<std::uint64_t, 3> words{};
    std::uint64_t size = 0;
  };

  /// 2^slot_bits slots of 64 bytes.
  explicit WordCache(int slot_bits) : slots_(std::size_t{1} << slot_bits) {}

  /// Nothing for words that are too long to be kept.
  static std::optional<Key> key_of(std::string_view word);

  /// Appends the ids of `key` to `out` and returns true, or returns false.
  bool find(const Key& key, std::vector<Token>& out) const;

  /// Keeps ids[0, count) for `key`, unless they are too many.
  void insert(const Key& key, const Token* ids, std::size_t count);

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> sequence{0};  // odd while being written
    std::atomic<std::uint64_t> sizes{0};     // bytes of the word, number of ids << 8; 0 if empty
    std::array<std::atomic<std::uint64_t>, 3> word{};
    std::array<std::atomic<std::uint64_t>, 3> ids{};
  };

  std::size_t home_of(const Key& key) const;
  static bool read(const Slot& slot, const Key& key, std::vector<Token>& out);

  std::vector<Slot> slots_;
};

}  // namespace rondo::text
