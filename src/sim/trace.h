// Trace: the prompts and response lengths of a rollout that has happened, from a jsonl file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "rollout/request.h"

namespace rondo::sim {

struct TraceConfig {
  std::string file = {};
  int max_new_tokens = 0;
  double chars_per_token = 0.0;
  bool measure_drafts = true;

  template <class V>
  void visit(V& v) {
    v.field(
        "file", file,
        "jsonl of responses, used instead of [lengths]: {prompt_id, sample, length}, or a rollout dump of "
        "rondo, verl or slime");
    v.field("max_new_tokens", max_new_tokens, "Limit of a response's length; 0: the longest of the trace",
            {.min = 0});
    v.field("chars_per_token", chars_per_token,
            "Characters of a text per token, for rows that have texts alone, as verl's; 0: refuse them",
            {.min = 0});
    v.field(
        "measure_drafts", measure_drafts,
        "Where the trace has tokens, run suffix trees over them to learn how drafts fare, instead of taking "
        "speculation.gain");
  }
  bool operator==(const TraceConfig&) const = default;
};

/// A trace in memory. Groups and requests have ids 0, 1, … in the order of the file.
struct Trace {
  std::vector<rollout::GroupSpec> groups;
  std::vector<std::vector<Token>> tokens;  // of each request; empty if some row has none
};

/// Reads the file. kInvalidArgument or kDataLoss names the line, the field and what it may be: lengths that
/// are none, fields that contradict each other, samples of a prompt that are missing or there twice.
Result<Trace> read_trace(const TraceConfig& config);
/// The same for the bytes of a file; `name` stands for it in messages.
Result<Trace> parse_trace(const TraceConfig& config, std::string_view text, const std::string& name);

}  // namespace rondo::sim
