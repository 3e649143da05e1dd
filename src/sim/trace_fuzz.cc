// Arbitrary bytes as a trace: a Result, never a crash, and groups that a simulation can take.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "sim/trace.h"

std::vector<std::string> fuzz_seeds() {
  return {
      "{\"prompt_id\": \"b\", \"sample\": 1, \"length\": 20}\n"
      "{\"prompt_id\": \"b\", \"sample\": 0, \"length\": 5, \"prompt_length\": 77}\n",
      R"({"step":3,"ordinal":0,"sample":0,"input":"q","prompt_tokens":[1,2],"response_tokens":[3,4,5]})",
      R"({"group_index":0,"index":0,"tokens":[1,2,3,4,5],"response_length":2})",
      R"({"input":"12345678","output":"123456789012","gts":"","score":1.0,"step":1})",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const double chars_per_token : {0.0, 1e-6, 4.0}) {
    const auto trace = rondo::sim::parse_trace({.chars_per_token = chars_per_token}, bytes, "fuzz");
    if (!trace) continue;
    std::size_t request = 0;
    for (const auto& group : trace->groups) {
      RONDO_CHECK_GE(group.prompt_tokens, 1);
      RONDO_CHECK_EQ(group.samples.size(), trace->groups.front().samples.size());
      for (const auto& sample : group.samples) {
        RONDO_CHECK(sample.true_tokens >= 1 && sample.true_tokens <= sample.max_new_tokens);
        if (!trace->tokens.empty()) RONDO_CHECK_EQ(std::ssize(trace->tokens[request]), sample.true_tokens);
        ++request;
      }
    }
  }
  return 0;
}
