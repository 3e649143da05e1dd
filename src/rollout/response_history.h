// ResponseHistory: what earlier epochs answered to a prompt, for drafts and length estimates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "config/byte_size.h"

namespace rondo::rollout {

/// Keeps the newest responses to each prompt, in bounded memory; the prompts that were answered longest ago
/// go first.
///
/// What is added shows only from the next policy version on: so within a version it is the same for all who
/// read it. A prompt is known by a checksum of its tokens; a collision would mislead drafts and estimates, no
/// more. What is in here changes speed alone. One owner thread for all changes; responses() may be called
/// from any thread between two new_policy_version().
class ResponseHistory final {
 public:
  struct Config {
    bool enabled = false;
    int responses = 8;
    config::ByteSize memory{std::int64_t{256} << 20};

    template <class V>
    void visit(V& v) {
      v.field("enabled", enabled,
              "Draft from, and expect lengths like, the responses of earlier epochs to the same prompt; "
              "changes speed alone.");
      v.field("responses", responses, "Newest responses kept per prompt.", {.min = 1, .max = 1024});
      v.field("memory", memory, "For all of them; prompts answered longest ago are forgotten first.");
    }
  };

  explicit ResponseHistory(const Config& config);

  /// A finished response of the present version.
  void add(std::span<const Token> prompt, std::span<const Token> response);
  /// What was added since the last call shows from now on.
  void new_policy_version();

  /// Newest first; empty if nothing is known. Valid until the next new_policy_version().
  std::span<const std::vector<Token>> responses(std::span<const Token> prompt) const;
  std::vector<std::int32_t> lengths(std::span<const Token> prompt) const;

  std::size_t num_prompts() const { return known_.size(); }
  /// Of the tokens that responses() tells of. At most Config::memory after new_policy_version().
  std::int64_t bytes() const { return bytes_; }

 private:
  using Key = std::uint64_t;
  struct Entry {
    std::vector<std::vector<Token>> responses;
    std::int64_t bytes = 0;
    std::list<Key>::iterator age = {};
  };
  void learn(Key key, std::vector<std::vector<Token>> fresh);
  void forget(Key key);

  Config config_;
  std::unordered_map<Key, Entry> known_;
  std::list<Key> by_age_;  // answered longest ago first
  std::int64_t bytes_ = 0;
  // Of the present version, in order of arrival of their first response.
  std::vector<Key> fresh_order_;
  std::unordered_map<Key, std::vector<std::vector<Token>>> fresh_;
};

}  // namespace rondo::rollout
