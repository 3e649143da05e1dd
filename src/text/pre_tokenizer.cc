#include "text/pre_tokenizer.h"

#include <string>

namespace rondo::text {

Result<PreTokenizer::Cutter> PreTokenizer::cutter_of(const SplitStep& step, Engine engine) {
  if (step.literal) return Pattern::literal(step.pattern);
  if (engine == Engine::kScanners) {
    if (step.pattern == kGpt2Pattern) return Gpt2Scanner();
    if (step.pattern == kLlama3Pattern) return TiktokenScanner(3);
    if (step.pattern == kQwen2Pattern) return TiktokenScanner(1);
  }
  return Pattern::compile(step.pattern);
}

Result<PreTokenizer> PreTokenizer::create(const std::vector<PreTokenizerStep>& steps, Engine engine) {
  PreTokenizer result;
  for (const PreTokenizerStep& step : steps) {
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      RONDO_ASSIGN_CTX(Cutter cutter, cutter_of(*split, engine), "pre_tokenizer: Split");
      result.cutters_.push_back(std::move(cutter));
    } else if (const auto* digits = std::get_if<DigitsStep>(&step)) {
      result.cutters_.emplace_back(DigitScanner(digits->individual));
    } else {
      const auto& byte_level = std::get<ByteLevelStep>(step);
      if (byte_level.add_prefix_space) result.cutters_.emplace_back(PrefixSpace());
      if (!byte_level.use_regex) continue;
      RONDO_ASSIGN(Cutter cutter, cutter_of({std::string(kGpt2Pattern), false}, engine));
      result.cutters_.push_back(std::move(cutter));
    }
  }
  return result;
}

template <class Scanner>
void PreTokenizer::scan(const Scanner& scanner, std::size_t step, std::string_view text,
                        const Sink& sink) const {
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* stop = scanner.next(at, end);
    split_from(step + 1, {at, static_cast<std::size_t>(stop - at)}, sink);
    at = stop;
  }
}

void PreTokenizer::split_from(std::size_t step, std::string_view text, const Sink& sink) const {
  if (step == cutters_.size()) {
    if (!text.empty()) sink(text);
    return;
  }
  const auto cut = [&](const auto& cutter) {
    using T = std::decay_t<decltype(cutter)>;
    if constexpr (std::is_same_v<T, Pattern>) {
      cutter.split(text, [&](std::string_view piece) { split_from(step + 1, piece, sink); });
    } else if constexpr (!std::is_same_v<T, PrefixSpace>) {
      scan(cutter, step, text, sink);
    } else if (text.empty() || text.front() == ' ') {
      split_from(step + 1, text, sink);
    } else {
      std::string prefixed(1, ' ');
      prefixed.append(text);
      split_from(step + 1, prefixed, sink);
    }
  };
  std::visit(cut, cutters_[step]);
}

}  // namespace rondo::text
