#include "timeline/recorder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace rondo::timeline {

Recorder::Recorder(std::string name, std::int64_t begin_ns) : Recorder(std::move(name), begin_ns, Limits{}) {}

Recorder::Recorder(std::string name, std::int64_t begin_ns, const Limits& limits) : limits_(limits) {
  RONDO_CHECK(limits.max_chunks >= 1 && limits.bins >= 2);
  timeline_.name = std::move(name);
  timeline_.begin_ns = timeline_.end_ns = begin_ns;
}

// Group ids are often multiples of the group's size, so the halves are told apart by a mix of the id's bits.
bool Recorder::keeps(GroupId group) const {
  auto bits = static_cast<std::uint64_t>(group.value()) * 0x9E3779B97F4A7C15U;
  bits ^= bits >> 32;
  return bits % static_cast<std::uint64_t>(timeline_.one_group_in) == 0;
}

void Recorder::saw(InstanceId instance) {
  RONDO_CHECK(instance.value() >= 0);
  timeline_.num_instances = std::max(timeline_.num_instances, instance.value() + 1);
}

void Recorder::chunk(const Chunk& chunk) {
  saw(chunk.instance);
  ++timeline_.num_chunks;
  timeline_.num_migrations += chunk.migrated ? 1 : 0;
  timeline_.end_ns = std::max(timeline_.end_ns, chunk.end_ns);
  if (chunk.finished) {
    timeline_.finishes.push_back({.request = chunk.request,
                                  .group = chunk.group,
                                  .instance = chunk.instance,
                                  .time_ns = chunk.end_ns,
                                  .tokens = chunk.end_tokens});
  }
  if (!keeps(chunk.group)) return;
  timeline_.chunks.push_back(chunk);
  while (std::ssize(timeline_.chunks) > limits_.max_chunks) {
    timeline_.one_group_in *= 2;
    std::erase_if(timeline_.chunks, [this](const Chunk& kept) { return !keeps(kept.group); });
  }
}

Recorder::CounterId Recorder::add_counter(std::string_view name) {
  quantities_.push_back({std::string(name), {}});
  return quantities_.size() - 1;
}

void Recorder::set(CounterId counter, InstanceId instance, std::int64_t time_ns, double value) {
  saw(instance);
  std::vector<StepSeries>& series = quantities_[counter].series;
  const auto index = static_cast<std::size_t>(instance.value());
  if (index >= series.size()) series.resize(index + 1, StepSeries(timeline_.begin_ns, limits_.bins));
  series[index].set(time_ns, value);
  timeline_.end_ns = std::max(timeline_.end_ns, time_ns);
}

Timeline Recorder::finish(std::int64_t end_ns) {
  timeline_.end_ns = std::max(timeline_.end_ns, end_ns);
  std::ranges::stable_sort(timeline_.chunks, {}, &Chunk::end_ns);
  std::ranges::stable_sort(timeline_.finishes, {}, &Finish::time_ns);
  for (Quantity& quantity : quantities_) {
    for (std::size_t i = 0; i < quantity.series.size(); ++i) {
      std::vector<double> means = quantity.series[i].means(timeline_.end_ns);
      timeline_.counters.push_back({.name = quantity.name,
                                    .instance = InstanceId(static_cast<std::int32_t>(i)),
                                    .bin_ns = quantity.series[i].bin_ns(),
                                    .means = std::move(means)});
    }
  }
  return std::move(timeline_);
}

}  // namespace rondo::timeline
