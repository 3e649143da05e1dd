#include "sim/report.h"

#include <nlohmann/json.hpp>

#include "metrics/console.h"

namespace rondo::sim {
namespace {

constexpr double kGb = 1e9;

std::string with_range(const std::optional<Spread>& spread, std::size_t num_seeds) {
  if (!spread) return "-";
  if (num_seeds == 1) return fmt::format("{:.2f}", spread->mean);
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", spread->mean, spread->least, spread->most);
}

std::string published(const std::vector<double>& values, std::size_t index, double none) {
  if (values.empty() || values[index] == none) return "-";
  return fmt::format("{:.2f}", values[index]);
}

}  // namespace

std::string comparison_table(const CompareConfig& compare, const std::vector<VariantOutcomes>& all) {
  const bool publishes = !compare.published_speedup.empty() || !compare.published_tail.empty();
  std::vector<std::string> header = {"variant", "tokens/s", "speed-up"};
  if (publishes) header.emplace_back("paper");
  for (const char* name : {"total s", "tail s", "tail / first"}) header.emplace_back(name);
  if (publishes) header.emplace_back("paper");
  for (const char* name :
       {"idle", "spread", "running", "preempted", "moves", "moved GB", "accept len", "us/decision"}) {
    header.emplace_back(name);
  }
  metrics::ConsoleTable table(header);
  for (std::size_t v = 0; v < all.size(); ++v) {
    const VariantOutcomes& variant = all[v];
    const std::size_t seeds = variant.outcomes.size();
    const auto mean = [&](Figure figure) { return mean_of(variant, figure); };
    std::vector<std::string> row = {variant.label, fmt::format("{:.0f}", mean(speed_of)),
                                    with_range(ratio_of(variant, all.front(), speed_of), seeds)};
    if (publishes) row.push_back(published(compare.published_speedup, v, 0.0));
    row.push_back(fmt::format("{:.0f}", mean(total_of)));
    row.push_back(fmt::format("{:.0f}", mean(tail_of)));
    row.push_back(with_range(ratio_of(variant, all.front(), tail_of), seeds));
    if (publishes) row.push_back(published(compare.published_tail, v, -1.0));
    row.push_back(fmt::format("{:.0f} %", 100 * mean([](const Outcome& o) { return o.idle_share; })));
    row.push_back(fmt::format("{:.0f} %", 100 * mean([](const Outcome& o) { return o.finish_spread; })));
    row.push_back(fmt::format("{:.0f}", mean([](const Outcome& o) { return o.mean_running; })));
    row.push_back(
        fmt::format("{:.0f}", mean([](const Outcome& o) { return static_cast<double>(o.preemptions); })));
    row.push_back(
        fmt::format("{:.0f}", mean([](const Outcome& o) { return static_cast<double>(o.migrations); })));
    row.push_back(fmt::format("{:.0f}", mean([](const Outcome& o) { return o.migrated_bytes / kGb; })));
    row.push_back(fmt::format("{:.2f}", mean([](const Outcome& o) { return o.accept_length; })));
    row.push_back(fmt::format("{:.2f}", mean([](const Outcome& o) { return o.decision_us; })));
    table.add_row(std::move(row));
  }
  return table.to_string();
}

std::string seed_table(const std::vector<VariantOutcomes>& all) {
  metrics::ConsoleTable table({"variant", "seed", "tokens/s", "total s", "tail s", "idle", "spread",
                               "preempted", "moves", "event hash"});
  for (const VariantOutcomes& variant : all) {
    for (const Outcome& o : variant.outcomes) {
      table.add_row({variant.label, fmt::format("{}", o.seed), fmt::format("{:.0f}", o.tokens_per_s()),
                     fmt::format("{:.0f}", o.total_s), fmt::format("{:.0f}", o.tail_s),
                     fmt::format("{:.0f} %", 100 * o.idle_share),
                     fmt::format("{:.0f} %", 100 * o.finish_spread), fmt::format("{}", o.preemptions),
                     fmt::format("{}", o.migrations), fmt::format("{:016x}", o.event_hash)});
    }
  }
  return table.to_string();
}

std::string outcomes_json(const std::vector<VariantOutcomes>& all, std::string_view setting) {
  std::string text;
  for (const VariantOutcomes& variant : all) {
    for (const Outcome& o : variant.outcomes) {
      text += nlohmann::json{{"setting", setting},
                             {"variant", variant.label},
                             {"seed", o.seed},
                             {"seconds", o.total_s},
                             {"tail_seconds", o.tail_s},
                             {"responses", o.responses},
                             {"tokens", o.tokens},
                             {"tokens_per_second", o.tokens_per_s()},
                             {"unfinished_tokens", o.unfinished_tokens},
                             {"idle_share", o.idle_share},
                             {"finish_spread", o.finish_spread},
                             {"mean_running", o.mean_running},
                             {"preempted", o.preemptions},
                             {"recomputed_tokens", o.recomputed_tokens},
                             {"migrations", o.migrations},
                             {"migrated_bytes", o.migrated_bytes},
                             {"evicted_bytes", o.evicted_bytes},
                             {"accept_len", o.accept_length},
                             {"chunks", o.chunks},
                             {"events", o.events},
                             {"request_steps", o.request_steps},
                             {"event_hash", fmt::format("{:016x}", o.event_hash)},
                             {"measured",
                              {{"wall_seconds", o.wall_s},
                               {"decision_us", o.decision_us},
                               {"request_steps_per_second", o.request_steps / o.wall_s}}}}
                  .dump() +
              "\n";
    }
  }
  return text;
}

}  // namespace rondo::sim
