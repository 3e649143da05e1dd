#include "suffix/sibling_workload.h"

#include <random>

namespace rondo::suffix {
namespace {

// Uniform in [0, 1): the distributions of <random> differ between libraries.
class Source final {
 public:
  explicit Source(std::uint32_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_()) * 0x1p-32; }
  // Low numbers more often: the square of a uniform number.
  std::int32_t skewed_below(std::int32_t bound) {
    const double u = uniform();
    return static_cast<std::int32_t>(u * u * bound);
  }
  std::int32_t below(std::int32_t bound) { return static_cast<std::int32_t>(uniform() * bound); }

 private:
  std::mt19937 engine_;
};

}  // namespace

std::vector<std::vector<Token>> SiblingWorkload::sequences() const {
  Source source(seed);
  std::vector<std::vector<Token>> phrases(static_cast<std::size_t>(num_phrases));
  for (auto& phrase : phrases) {
    const std::int32_t length = 3 + source.below(max_phrase - 2);
    phrase.resize(static_cast<std::size_t>(length));
    for (Token& token : phrase) token = source.skewed_below(source.uniform() < 0.5 ? 200 : vocabulary);
  }
  std::vector<std::vector<Token>> result(static_cast<std::size_t>(num_sequences));
  for (auto& sequence : result) {
    while (static_cast<std::int32_t>(sequence.size()) < num_tokens) {
      if (source.uniform() < noise) sequence.push_back(source.skewed_below(vocabulary));
      for (const Token token : phrases[static_cast<std::size_t>(source.skewed_below(num_phrases))]) {
        if (source.uniform() < leave) break;
        sequence.push_back(token);
      }
    }
    sequence.resize(static_cast<std::size_t>(num_tokens));
  }
  return result;
}

}  // namespace rondo::suffix
