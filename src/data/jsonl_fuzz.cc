// Arbitrary bytes as a prompt dataset and as a rollout dump: a Result, never a crash, and
// rows that keep what their structs promise.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "data/prompt_row.h"
#include "data/rollout_dump.h"

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"2+2?"}],)"
      R"("reward_model":{"style":"rule","ground_truth":"4"},"extra_info":{"index":0}})"
      "\n",
      "\xEF\xBB\xBF{\"prompt\":\"caf\xC3\xA9 \\u00e9\\ud83d\\ude00\",\"label\":-7.5e3}\r\n\r\n"
      "{\"prompt\":\"b\",\"answer\":12}",
      R"({"step":0,"prompt_index":1,"ordinal":2,"sample":3,"policy_version":4,"data_source":"d","input":"i",)"
      R"("output":"o","gts":"g","score":1.5,"advantage":-0.0,"finish_reason":"stop","prompt_tokens":[1,2],)"
      R"("response_tokens":[3,4],"log_probs":[-1.25e-7,"NaN"]})"
      "\n",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto prompts = rondo::data::parse_prompts(bytes, "fuzz", {}, rondo::data::GroundTruth::kOptional);
  if (prompts) {
    for (const auto& row : *prompts) RONDO_CHECK_NE(row.is_chat(), !row.text.empty());
  }
  const auto rollouts = rondo::data::parse_rollouts(bytes, "fuzz");
  if (rollouts) {
    for (const auto& row : *rollouts) RONDO_CHECK_EQ(row.log_probs.size(), row.response_tokens.size());
  }
  return 0;
}
