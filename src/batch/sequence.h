// Sequence: one response in the making, and its states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/id.h"
#include "kv/block_table.h"

namespace rondo::batch {

/// A dense index of a live sequence, for the engine's own per-sequence arrays. Reused after the sequence
/// ends.
using Slot = Id<struct SlotTag, std::int32_t>;

/// What is asked for. The samples of a group have the same `prompt` tokens.
struct SequenceSpec {
  RequestId id;
  GroupId group;
  std::shared_ptr<const std::vector<Token>> prompt;
  std::int32_t max_new_tokens = 0;   // the response's length limit, at least 1
  std::int32_t sample = 0;           // index in the group; the engine's business, e.g. as a random counter
  std::int32_t chunk_tokens = 0;     // new tokens after which it parks; 0: never
  std::vector<Token> response = {};  // the tokens that it has already, from an earlier chunk elsewhere
  std::int32_t num_stored = 0;  // the engine can restore the KV of positions [0, num_stored) at admission
  bool keep_prompt = false;     // the prompt's KV outlives the group's last live sample, see Roster::remove()
};

enum class FinishReason { kStopToken, kStopString, kLength, kCancelled };

/// "stop_token", "stop_string", "length", "cancelled".
std::string_view finish_reason_name(FinishReason reason);

/// A sequence that ended, with all its response tokens (the stop token included). Its slot is free again.
struct Finished {
  RequestId id;
  Slot slot;
  FinishReason reason = FinishReason::kLength;
  std::vector<Token> response;
};

///   waiting --admit--> prefilling --all known tokens but the last computed--> decoding --finish--> finished
///      ^                   |                                                  |   ^  |
///      +----- preempt -----+--------------------------------------------------+   |  +--chunk's end-->
///      parked ^                                                                          +---resume (KV
///      kept)---+
///      +------------------------------------resume (KV given up)----------------------------------------+
/// "Known" tokens are the prompt and the response so far. A finished sequence is removed at once. A parked
/// one does nothing until it is resumed or taken away; it may lose its blocks meanwhile.
enum class SequenceState { kWaiting, kPrefilling, kDecoding, kParked };

/// Holds a sequence's tokens, how many of them are computed (have their KV in its blocks), and the blocks.
///
/// Does not decide anything: Roster drives it. A token once appended never changes; preemption gives up the
/// blocks alone. A transition from the wrong state is a bug and aborts. One owner thread.
class Sequence final {
 public:
  /// `arrival` orders sequences: smaller ones go first and are preempted last.
  Sequence(SequenceSpec spec, std::int64_t arrival, kv::BlockPool& pool);

  const SequenceSpec& spec() const { return spec_; }
  std::int64_t arrival() const { return arrival_; }
  std::span<const Token> response() const { return response_; }
  std::int32_t num_prompt() const { return static_cast<std::int32_t>(spec_.prompt->size()); }
  std::int32_t num_known() const { return num_prompt() + static_cast<std::int32_t>(response_.size()); }
  std::int32_t num_computed() const { return num_computed_; }
  /// Positions whose KV the engine has put by; 0 once they were restored.
  std::int32_t num_stored() const { return num_stored_; }
  std::int32_t num_remaining() const { return num_known() - num_computed_; }
  Token token(std::int32_t position) const;

  SequenceState state() const;
  bool resident() const { return resident_; }
  const kv::BlockTable& table() const { return table_; }
  bool parked() const { return parked_; }
  /// Response tokens at which the present chunk, or the response, ends.
  std::int32_t chunk_end() const { return chunk_end_; }
  /// New tokens until then.
  std::int32_t num_left() const { return chunk_end_ - static_cast<std::int32_t>(response_.size()); }
  /// Blocks at the end of the present chunk (the last token's KV is not needed before the next one).
  std::int32_t peak_blocks() const;
  /// Whether all the prompt's positions that a sibling can take over are computed.
  bool has_shared_prefix() const { return resident_ && num_computed_ >= num_prompt() - 1; }

  /// waiting -> prefilling, with blocks whose first `num_computed` positions are filled.
  void admit(kv::BlockTable table, std::int32_t num_computed);
  /// Adds free blocks to the table of a resident sequence.
  void grow(std::span<const BlockId> free_blocks) { table_.acquire(free_blocks); }
  /// Positions [num_computed, end) are filled. Returns how many of them had been filled before.
  std::int32_t advance(std::int32_t end);
  /// A token was sampled behind the last known one, which is computed or drafted.
  void append(Token token);
  /// A decoding sequence keeps the first `num_kept` blocks of its table and gets `tail` behind them: those of
  /// the branch of its drafts that was accepted.
  void replace_tail(std::int32_t num_kept, std::span<const BlockId> tail);
  /// decoding -> parked, at the end of a chunk.
  void park();
  /// parked -> decoding or, without blocks, waiting; with up to `chunk_tokens` (0: all) further tokens to go.
  void resume(std::int32_t chunk_tokens);
  /// What was put by is void.
  void forget_stored() { num_stored_ = 0; }
  /// Back to waiting, or parked without blocks; returns them, for the caller to keep or drop.
  kv::BlockTable preempt();
  /// The response, moved out; the object only remains to be destroyed.
  std::vector<Token> take_response() { return std::move(response_); }

 private:
  void set_chunk(std::int32_t chunk_tokens);

  SequenceSpec spec_;
  std::int64_t arrival_;
  kv::BlockPool* pool_;
  std::int32_t chunk_end_;
  std::vector<Token> response_;
  kv::BlockTable table_;
  std::int32_t num_computed_ = 0;
  std::int32_t num_stored_ = 0;
  std::int32_t max_computed_ = 0;  // the most positions ever filled
  bool resident_ = false;
  bool parked_ = false;
};

}  // namespace rondo::batch
