// Bytes as a log: the kept rows are an accepted log of themselves, and rows have one deterministic part.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/json_row.h"
#include "metrics/jsonl_file.h"

// The driver's seeds; libFuzzer brings its own corpus.
std::vector<std::string> fuzz_seeds() {
  rondo::metrics::StepRecord record;
  record.set("reward/mean", 0.41);
  record.set("timing_s/gen", 1.5, rondo::metrics::Nature::kMeasured);
  const std::string row = rondo::metrics::json_row(1, record);
  return {row + "\n" + rondo::metrics::json_row(5, record) + "\n", row, "{\"step\":2,\"x\":[1,{}]}\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto part = rondo::metrics::deterministic_part(text)) {
    if (rondo::metrics::deterministic_part(*part).value() != *part) std::abort();
  }
  const auto rows = rondo::metrics::rows_up_to_step(text, 3);
  if (!rows) return 0;
  std::string kept;
  for (const std::string_view row : *rows) kept += row;
  const auto again = rondo::metrics::rows_up_to_step(kept, 3);
  if (!again || again->size() != rows->size()) std::abort();
  return 0;
}
