// Engine: one inference instance. Each step gathers rows, runs the model, samples, and commits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/rng.h"
#include "base/status.h"
#include "batch/drafts.h"
#include "batch/planner.h"
#include "config/byte_size.h"
#include "engine/forward.h"
#include "engine/kv_storage.h"
#include "engine/stop_condition.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"
#include "kv/image.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace rondo::engine {

/// What a response has got so far.
struct Progress {
  std::vector<Token> tokens;
  std::vector<float> logprobs;   // as in Response
  std::vector<float> entropies;  // as in Response
};

/// The same, owned by an engine. Valid until its next change.
struct ProgressView {
  std::span<const Token> tokens;
  std::span<const float> logprobs;
  std::span<const float> entropies;
};

/// One response to generate, or the rest of one that began elsewhere. Everything that its tokens depend on is
/// in here and in the weights.
struct Request {
  RequestId id;
  GroupId group;                                     // requests of a group have the same prompt
  std::shared_ptr<const std::vector<Token>> prompt;  // at least one token
  std::int32_t max_new_tokens = 0;                   // at least 1
  kernels::SamplingParams sampling;
  Rng rng{0, RngPurpose::kRollout};
  RngCounter counter;                     // step, ordinal and sample; the engine fills in the position
  std::shared_ptr<const StopRules> stop;  // null: the length alone ends it
  std::int32_t chunk_tokens = 0;          // new tokens after which it parks; 0: never
  Progress progress = {};                 // from an earlier chunk
  // Its KV from there: images that together cover positions [0, num_tokens) without a gap, or none. One that
  // is damaged, or void because the weights changed, is computed anew.
  std::vector<std::shared_ptr<const kv::Image>> stored = {};
  // The prompt's KV stays for later samples when the group's last one here has left, until drop_prompt() or
  // until its blocks are needed.
  bool keep_prompt = false;
};

/// A finished response.
struct Response {
  RequestId id;
  GroupId group = {};
  std::vector<Token> tokens;  // the stop token included, if that ended it
  std::vector<float>
      logprobs;  // [tokens], log-softmax(logits / T) over the whole vocabulary (T = 0: as at T = 1)
  std::vector<float> entropies;  // [tokens], of that distribution, in nats
  batch::FinishReason reason = batch::FinishReason::kLength;
};

/// A sequence that a draft may be made for.
struct DraftContext {
  batch::Slot slot;
  RequestId id;
  GroupId group;
  std::span<const Token> prompt;
  std::span<const Token> response;
  std::int32_t max_tokens = 0;  // a longer draft is cut
};
/// Fills in drafts for any of the sequences. Called once a step, by the engine's owner thread.
using Drafter = std::function<void(std::span<const DraftContext>, batch::Drafts&)>;

/// Generates responses by continuous batching over a paged KV pool of fixed size.
///
/// Does not own the weights, the thread team or the tokenizer. What it generates for a request does not
/// depend on what else runs, on the budgets in the config, on preemption, or on threads. One owner thread,
/// which owns the context's pool. After an error from step() the engine is poisoned: destroy it.
class Engine final {
 public:
  struct Config {
    config::ByteSize kv_memory{std::int64_t{512} << 20};
    batch::Planner::Config batch;

    template <class V>
    void visit(V& v) {
      v.field("kv_memory", kv_memory,
              "Memory of the KV pool of each instance. A response that can never fit is refused. Policies "
              "that work "
              "in chunks start only what fits; under group_round_robin the newest responses wait when the "
              "pool is "
              "full, and are computed again.");
      v.section("batch", batch, "Continuous batching.");
    }
  };

  /// kInvalidArgument if the KV pool holds less than one block. `tokenizer` may be null where no request has
  /// stop strings.
  static Result<std::unique_ptr<Engine>> create(const Config& config, const model::Model& model,
                                                const text::Tokenizer* tokenizer,
                                                const kernels::Context& context);

  /// Whether model and settings allow the request; submit() asks this itself.
  Result<void> check(const Request& request) const;
  /// Queues a request. kInvalidArgument or kResourceExhausted, with the reason, if it can never run; nothing
  /// changed then.
  Result<void> submit(Request request);
  /// Ends a request now and returns what it has; nullopt if it is not live.
  std::optional<Response> cancel(RequestId id);

  /// Runs one step and appends the responses that ended. kNumeric if logits are not finite.
  Result<void> step(std::vector<Response>& finished);
  /// What else the last step brought: chunks that are over, and how drafts fared.
  std::span<const batch::Planner::Parked> parked() const { return outcome_.parked; }
  std::span<const batch::Planner::Verdict> verdicts() const { return outcome_.verdicts; }
  /// No request runs or waits; some may be parked.
  bool idle() const { return planner_->roster().residents().empty() && planner_->roster().waiting().empty(); }

  /// A parked request goes on for up to `chunk_tokens` (0: to its end); false if it is not parked.
  bool resume(RequestId id, std::int32_t chunk_tokens) { return planner_->resume(id, chunk_tokens); }
  /// What a live request's response has so far.
  ProgressView progress(RequestId id) const;
  /// The KV of blocks [first_block, end_block) of a parked request, of all behind the first if `end_block` is
  /// negative; null if it holds none.
  std::shared_ptr<const kv::Image> export_kv(RequestId id, std::int32_t first_block,
                                             std::int32_t end_block = -1) const;
  /// The KV of the group's prompt but for its last token, which every sample computes itself; null if no one
  /// here has it computed.
  std::shared_ptr<const kv::Image> export_prompt(GroupId group) const;
  /// Whether a request is live here, and whether the prompt of a group is computed here.
  bool is_live(RequestId id) const { return planner_->roster().find(id).has_value(); }
  bool has_prompt(GroupId group) const { return !planner_->roster().prompt_blocks(group).empty(); }
  /// Ends a request here, to go on elsewhere; nullopt if it is not live.
  std::optional<Progress> take(RequestId id);

  /// Who proposes drafts; empty: nobody. Which drafts there are changes speed alone.
  void set_drafter(Drafter drafter) { drafter_ = std::move(drafter); }
  /// Requests whose stored KV was damaged.
  std::int64_t num_damaged_images() const { return num_damaged_images_; }

  /// No further samples of the group are to come (Request::keep_prompt).
  void drop_prompt(GroupId group) { planner_->drop_prompt(group); }
  /// Groups whose prompt is kept although nothing of them is here.
  std::size_t num_kept_prompts() const { return planner_->roster().prefixes().entries().size(); }

  /// For new weights: everything computed from the old ones is void. Live requests keep their tokens.
  void drop_kv();

  const batch::Planner::Stats& stats() const { return planner_->stats(); }
  std::int32_t num_blocks() const { return num_blocks_; }
  /// Bytes of the KV pool and of activations.
  std::size_t kv_bytes() const { return kv_.bytes(); }
  std::size_t activation_bytes() const { return forward_.bytes(); }

 private:
  // What the engine keeps per live sequence, by slot.
  struct Live {
    Request request;
    std::vector<float> logprobs;
    std::vector<float> entropies;
    std::optional<StopCondition> stop;
  };

  Engine(const model::Model& model, const text::Tokenizer* tokenizer, const kernels::Context& context,
         KvStorage kv, std::unique_ptr<batch::Planner> planner, std::int64_t max_rows,
         std::int32_t num_blocks);
  // Where the sampling of a segment stands: it follows its drafts from row to row.
  struct Walk {
    const batch::Segment* segment;
    std::int32_t row;
    bool over;
  };

  Live& live(batch::Slot slot) { return live_[static_cast<std::size_t>(slot.value())]; }
  std::int32_t stored_tokens(Request& request);
  std::shared_ptr<const kv::Image> read_image(std::span<const BlockId> blocks, std::int32_t first_block,
                                              std::int32_t num_tokens) const;
  void make_drafts();
  void restore_kv();
  void gather_spans();
  Result<void> sample_rows();
  Result<void> sample_chunk(std::size_t first, std::size_t count);
  Result<void> sample_walk(Walk& walk, std::size_t first, std::size_t end, const float* logits,
                           kernels::SamplingScratch& scratch);
  Result<std::optional<std::int32_t>> sample_row(const Walk& walk, std::size_t index, const float* logits,
                                                 kernels::SamplingScratch& scratch);
  Response make_response(batch::Finished&& finished);

  const model::Model* model_;
  const text::Tokenizer* tokenizer_;
  kernels::Context context_;
  KvStorage kv_;
  std::unique_ptr<batch::Planner> planner_;
  Forward forward_;
  std::int32_t num_blocks_;
  std::vector<Live> live_;
  // Reused by every step.
  batch::Plan plan_;
  std::vector<std::int32_t> tables_;
  std::vector<kernels::SequenceSpan> spans_;
  std::vector<batch::Sample> samples_;
  std::vector<kernels::SequenceSpan> extra_stores_;
  std::vector<Walk> walks_;
  batch::Planner::Outcome outcome_;
  Drafter drafter_;
  std::vector<DraftContext> contexts_;
  batch::Drafts drafts_;
  std::int64_t num_damaged_images_ = 0;
  std::vector<kernels::SamplingScratch> scratch_;  // by thread
};

}  // namespace rondo::engine
