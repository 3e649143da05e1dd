// Runs a libFuzzer target without libFuzzer: seed inputs from the target, mutated for a fixed number of
// rounds.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Every target gives a few valid inputs to start from.
std::vector<std::string> fuzz_seeds();

namespace {

void mutate(std::string& bytes, std::mt19937_64& rng) {
  const std::size_t edits = 1 + rng() % 4;
  for (std::size_t i = 0; i < edits; ++i) {
    const std::size_t at = bytes.empty() ? 0 : rng() % bytes.size();
    switch (rng() % 5) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng());
        break;
      case 1:
        bytes.insert(at, 1, static_cast<char>(rng()));
        break;
      case 2:
        bytes.erase(at, 1 + rng() % 8);
        break;
      case 3:
        bytes.resize(at);
        break;
      default:
        if (!bytes.empty()) bytes.insert(at, bytes.substr(rng() % bytes.size(), rng() % 16));
        break;
    }
  }
}

long option(int argc, char** argv, const char* name, long fallback) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], name, std::strlen(name)) == 0) return std::atol(argv[i] + std::strlen(name));
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const long rounds = option(argc, argv, "--rounds=", 1000);
  std::mt19937_64 rng(static_cast<std::uint64_t>(option(argc, argv, "--seed=", 1)));
  const std::vector<std::string> seeds = fuzz_seeds();
  for (const std::string& seed : seeds)
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(seed.data()), seed.size());
  for (long round = 0; round < rounds; ++round) {
    std::string bytes = seeds.empty() ? std::string() : seeds[rng() % seeds.size()];
    mutate(bytes, rng);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  return 0;
}
