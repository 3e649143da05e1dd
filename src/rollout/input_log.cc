#include "rollout/input_log.h"

#include <array>
#include <bit>
#include <charconv>
#include <concepts>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace rondo::rollout {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<RecordedInput>> kKinds = {
    "instance", "failed",  "group", "goal",    "assign",     "chunk_done", "finished",
    "prefetch", "version", "prior", "abandon", "draft_plan", "draft_seen"};

template <class T>
concept IsId = requires(T id) {
  { id.value() } -> std::integral;
};

// Appends numbers to a line.
class Writer final {
 public:
  explicit Writer(std::string& line) : line_(line) {}
  template <class T>
  void number(T value) {
    fmt::format_to(std::back_inserter(line_), " {}", static_cast<std::int64_t>(value));
  }
  template <class T>
  void list(std::vector<T>& items) {
    number(items.size());
    for (T& item : items) fields(*this, item);
  }

 private:
  std::string& line_;
};

// Takes numbers from a line; a number that is missing or too large makes it fail.
class Reader final {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}
  bool complete() const { return ok_ && rest_.empty(); }

  template <class T>
  void number(T& value) {
    std::int64_t wide = 0;
    if (!take(wide)) return;
    if constexpr (std::is_same_v<T, bool>) {
      ok_ = wide == 0 || wide == 1;
    } else if constexpr (std::integral<T>) {
      ok_ = std::in_range<T>(wide);
    } else {
      ok_ = wide >= 0 && wide <= std::numeric_limits<std::uint8_t>::max();
    }
    if (ok_) value = static_cast<T>(wide);
  }

  template <class T>
  void list(std::vector<T>& items) {
    std::int64_t size = 0;
    if (!take(size)) return;
    ok_ = size >= 0 && size <= std::ssize(rest_);  // every item has at least one number
    for (std::int64_t i = 0; ok_ && i < size; ++i) {
      items.emplace_back();
      fields(*this, items.back());
    }
  }

 private:
  bool take(std::int64_t& value) {
    if (!ok_) return false;
    ok_ = !rest_.empty() && rest_.front() == ' ';
    if (!ok_) return false;
    rest_.remove_prefix(1);
    const auto result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    ok_ = result.ec == std::errc();
    if (ok_) rest_.remove_prefix(static_cast<std::size_t>(result.ptr - rest_.data()));
    return ok_;
  }

  std::string_view rest_;
  bool ok_ = true;
};

// The one description of each record's fields, for both directions.
template <class A, class T>
requires std::integral<T> || std::is_enum_v<T>
void fields(A& a, T& value) {
  a.number(value);
}
template <class A>
void fields(A& a, double& value) {
  auto bits = std::bit_cast<std::int64_t>(value);
  a.number(bits);
  value = std::bit_cast<double>(bits);
}
template <class A, IsId T>
void fields(A& a, T& id) {
  auto value = id.value();
  a.number(value);
  id = T(value);
}
template <class A, class... T>
void all(A& a, T&... members) {
  (fields(a, members), ...);
}
template <class A>
void fields(A& a, InstanceSpec& x) {
  all(a, x.id, x.num_blocks, x.max_running);
}
template <class A>
void fields(A& a, SampleSpec& x) {
  all(a, x.id, x.max_new_tokens, x.true_tokens);
}
template <class A>
void fields(A& a, KvPlace& x) {
  all(a, x.tier, x.instance);
}
template <class A>
void fields(A& a, Eviction& x) {
  all(a, x.request, x.group, x.from, x.to);
}
template <class A>
void fields(A& a, Placement& x) {
  all(a, x.instance, x.source, x.from, x.cached_tokens, x.moved_tokens, x.recomputed_tokens);
}
template <class A>
void fields(A& a, InstanceAdded& x) {
  fields(a, x.spec);
}
template <class A>
void fields(A& a, InstanceFailed& x) {
  fields(a, x.instance);
}
template <class A>
void fields(A& a, GroupAdded& x) {
  all(a, x.spec.id, x.spec.prompt_tokens);
  a.list(x.spec.samples);
  fields(a, x.spec.is_learned);
  a.list(x.spec.past_lengths);
}
template <class A>
void fields(A& a, GoalSet& x) {
  fields(a, x.num_groups);
}
template <class A>
void fields(A& a, Assigned& x) {
  Assignment& y = x.assignment;
  all(a, y.request, y.group, y.generated, y.max_tokens, y.reserved_blocks, y.placement);
  a.list(y.evictions);
  fields(a, y.version);
}
template <class A>
void fields(A& a, ChunkDone& x) {
  all(a, x.request, x.new_tokens);
}
template <class A>
void fields(A& a, RequestFinished& x) {
  all(a, x.request, x.total_tokens);
}
template <class A>
void fields(A& a, Prefetched& x) {
  fields(a, x.count);
  a.list(x.prefetch.moves);
  fields(a, x.prefetch.version);
}
template <class A>
void fields(A&, VersionChanged&) {}
template <class A>
void fields(A& a, PriorSet& x) {
  all(a, x.prior.log_median, x.prior.sigma, x.prior.rho, x.prior.weight);
}
template <class A>
void fields(A&, Abandoned&) {}
template <class A>
void fields(A& a, DraftPlanned& x) {
  for (std::int32_t& running : x.load.running) fields(a, running);
  all(a, x.load.mean_context, x.lengths.probe, x.lengths.other, x.lengths.paths);
}
template <class A>
void fields(A& a, DraftSeen& x) {
  all(a, x.draft_class.is_probe, x.draft_class.finished_siblings, x.drafted, x.accepted);
}

template <std::size_t I = 0>
std::optional<RecordedInput> input_of_kind(std::string_view kind) {
  if constexpr (I < std::variant_size_v<RecordedInput>) {
    if (kKinds[I] == kind) return RecordedInput(std::in_place_index<I>);
    return input_of_kind<I + 1>(kind);
  }
  return std::nullopt;
}

std::optional<TimedInput> parse_line(std::string_view line) {
  TimedInput result;
  const auto number = std::from_chars(line.data(), line.data() + line.size(), result.time_ns);
  line.remove_prefix(static_cast<std::size_t>(number.ptr - line.data()));
  if (number.ec != std::errc() || !line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(1);
  const std::string_view kind = line.substr(0, line.find(' '));
  auto input = input_of_kind(kind);
  if (!input) return std::nullopt;
  Reader reader(line.substr(kind.size()));
  std::visit([&reader](auto& record) { fields(reader, record); }, *input);
  if (!reader.complete()) return std::nullopt;
  result.input = *std::move(input);
  return result;
}

}  // namespace

std::string input_line(const TimedInput& input) {
  RecordedInput copy = input.input;  // one description of the fields serves reading too, so it is not const
  std::string line = fmt::format("{} {}", input.time_ns, kKinds[copy.index()]);
  Writer writer(line);
  std::visit([&writer](auto& record) { fields(writer, record); }, copy);
  return line + "\n";
}

Result<std::vector<TimedInput>> parse_input_log(std::string_view text) {
  std::vector<TimedInput> inputs;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    auto input = parse_line(text.substr(0, end));
    if (!input) {
      return fail(Code::kDataLoss,
                  "input log: line {} is damaged, or not of an input log; the {} lines before it are whole",
                  number, number - 1);
    }
    inputs.push_back(*std::move(input));
    text.remove_prefix(end + 1);
  }
  return inputs;
}

}  // namespace rondo::rollout
