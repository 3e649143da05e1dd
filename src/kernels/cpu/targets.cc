#include <hwy/highway.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/text_distance.h"
#include "kernels/cpu/register.h"

namespace rondo::kernels {
namespace {

struct Target {
  const char* name;
  std::int64_t bit;
};

// Best first. The build enables no other Highway target (src/kernels/CMakeLists.txt).
constexpr std::array<Target, 3> kTargets = {
    {{"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"portable", HWY_STATIC_TARGET}}};

struct Tables {
  std::array<OpTable, kTargets.size()> storage{};
  std::vector<const OpTable*> available;
};

void fill(OpTable& table) {
  cpu::fill_matmul(table);
  cpu::fill_transpose(table);
  cpu::fill_weight_grad(table);
  cpu::fill_pack(table);
  cpu::fill_attention(table);
  cpu::fill_attention_grad(table);
  cpu::fill_pointwise(table);
  cpu::fill_softmax(table);
  cpu::fill_optimizer(table);
  cpu::fill_limits(table);
}

// Highway has one chosen target per process; it is set to each in turn while its table is filled, before any
// kernel runs.
void build_tables(Tables& tables) {
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::size_t i = 0; i < kTargets.size(); ++i) {
    if ((supported & kTargets[i].bit) == 0) continue;
    hwy::SetSupportedTargetsForTest(kTargets[i].bit);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    tables.storage[i].name = kTargets[i].name;
    fill(tables.storage[i]);
    tables.available.push_back(&tables.storage[i]);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

const Tables& tables() {
  static const std::unique_ptr<const Tables> instance = [] {
    auto built = std::make_unique<Tables>();
    build_tables(*built);
    return built;
  }();
  return *instance;
}

}  // namespace

std::span<const OpTable* const> available_targets() {
  return tables().available;
}

Result<const OpTable*> find_target(std::string_view name) {
  if (name == "auto") return available_targets().front();
  std::vector<std::string> known = {"auto"};
  for (const Target& target : kTargets) known.emplace_back(target.name);
  for (const OpTable* table : available_targets())
    if (name == table->name) return table;
  for (const std::string& candidate : known)
    if (name == candidate)
      return fail(Code::kUnsupported, "this CPU cannot run the kernels for '{}'; use 'auto'", name);
  return fail(Code::kInvalidArgument,
              "unknown kernel target '{}'; the nearest is '{}' (auto, avx512, avx2, portable)", name,
              nearest_name(name, known));
}

}  // namespace rondo::kernels
