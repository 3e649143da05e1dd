// Bytes as a TOML document and as an override: whatever is accepted must dump and load to the same config.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "config/dump.h"
#include "config/example_config.h"
#include "config/load.h"

namespace {

using rondo::config::ExampleConfig;
using rondo::config::FieldList;

void check_round_trip(const ExampleConfig& config) {
  ExampleConfig again;
  const std::string dumped = rondo::config::to_toml_of(config);
  if (!rondo::config::load_text(FieldList(again), dumped, "dump")) std::abort();
  if (rondo::config::to_toml_of(again) != dumped) std::abort();
}

}  // namespace

// The driver's seeds; libFuzzer brings its own corpus.
std::vector<std::string> fuzz_seeds() {
  ExampleConfig config;
  config.rollout.sampling.stop = {"</s>", "a,b"};
  return {rondo::config::to_annotated_toml_of(config),
          "seed=3",
          "rollout.n=4",
          "eval.stop=[a, \"b\"]",
          "betas=0.1,1e-3",
          "rollout.kv_memory=1.5GiB",
          "name=\"x\\u00e9\"",
          "loss_agg_mode=seq-mean"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ExampleConfig from_file;
  if (rondo::config::load_text(FieldList(from_file), text, "fuzz")) check_round_trip(from_file);
  ExampleConfig from_override;
  if (rondo::config::apply_overrides(FieldList(from_override), std::vector<std::string>{text}))
    check_round_trip(from_override);
  return 0;
}
