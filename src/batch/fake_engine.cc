#include "batch/fake_engine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rondo::batch {
namespace {

std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) * 0x9E3779B97F4A7C15U;
  return state ^ (state >> 29);
}

// The content of a slot: a hash of its token and those before it.
std::uint64_t add_token(std::uint64_t content, Token token) {
  return mix(content, static_cast<std::uint64_t>(token) + 1);
}

constexpr std::uint64_t kNoTokens = 1;

std::uint64_t content_of(std::span<const Token> tokens) {
  std::uint64_t content = kNoTokens;
  for (const Token token : tokens) content = add_token(content, token);
  return content;
}

std::size_t index(BlockId block) {
  return static_cast<std::size_t>(block.value());
}

}  // namespace

FakeEngine::FakeEngine(Planner& planner, std::uint32_t stop_period)
    : planner_(planner), stop_period_(stop_period) {
  const auto num_blocks = static_cast<std::size_t>(planner.roster().pool().num_blocks());
  memory_.resize(num_blocks * kv::kBlockTokens);
  writers_.resize(num_blocks);
}

bool FakeEngine::failed() const {
  return testing::Test::HasFailure();
}

void FakeEngine::add(const SequenceSpec& spec) {
  const auto slot = planner_.add(spec);
  ASSERT_TRUE(slot) << slot.error().to_string();
  planner_.check_invariants();
  live_[spec.id] = {.spec = spec, .arrival = next_arrival_++, .known = *spec.prompt};
}

void FakeEngine::cancel(RequestId id) {
  const auto finished = planner_.cancel(id);
  planner_.check_invariants();
  ASSERT_EQ(finished.has_value(), live_.contains(id));
  if (finished) record(*finished);
}

void FakeEngine::drop_kv() {
  planner_.drop_kv();
  planner_.check_invariants();
  ASSERT_EQ(planner_.roster().pool().num_free(), planner_.roster().pool().num_blocks());
  for (auto& [id, model] : live_) {
    model.computed = 0;
    model.resident = false;
  }
  std::ranges::fill(memory_, 0);
  std::ranges::fill(writers_, RequestId());
}

void FakeEngine::step() {
  planner_.plan(plan_);
  planner_.check_invariants();
  mix_digest();
  check_limits();
  check_priorities();
  apply_releases();
  apply_admissions();
  check_holders();
  for (const kv::BlockCopy& c : plan_.copies) copy(c);
  for (const Segment& segment : plan_.segments) check_reads(segment);
  for (const Segment& segment : plan_.segments) compute(segment);
  planner_.commit(plan_, sample(), ended_);
  planner_.check_invariants();
  for (const Finished& finished : ended_) record(finished);
  for (std::size_t b = 0; b < writers_.size(); ++b) {
    const BlockId block(static_cast<std::int32_t>(b));
    if (planner_.roster().pool().ref_count(block) == 0) writers_[b] = RequestId();
  }
}

void FakeEngine::check_limits() const {
  std::size_t num_running = plan_.admissions.size();
  for (const auto& [id, model] : live_) num_running += model.resident ? 1 : 0;
  num_running -= plan_.preemptions.size();
  std::int32_t num_rows = 0;
  for (const Segment& segment : plan_.segments) {
    ASSERT_LT(segment.begin, segment.end);
    ASSERT_EQ(segment.first_row, num_rows);
    num_rows += segment.end - segment.begin;
    ASSERT_GE(segment.table_size, kv::blocks_for(segment.end));
    ASSERT_TRUE(live_.contains(segment.id));
  }
  ASSERT_EQ(num_rows, plan_.num_rows());
  ASSERT_LE(num_rows, planner_.limits().max_batch_tokens);
  ASSERT_LE(num_running, static_cast<std::size_t>(planner_.limits().max_running));
  ASSERT_EQ(num_rows == 0, live_.empty());
}

// The preempted are the latest arrivals; the oldest resident and every decoding one advance.
void FakeEngine::check_priorities() const {
  std::vector<RequestId> preempted;
  std::int64_t cut = next_arrival_;
  for (const Slot slot : plan_.preemptions) {
    const Sequence& sequence = planner_.roster().sequence(slot);
    preempted.push_back(sequence.spec().id);
    cut = std::min(cut, sequence.arrival());
  }
  const Model* oldest = nullptr;
  for (const auto& [id, model] : live_) {
    if (!model.resident) continue;
    ASSERT_EQ(model.arrival >= cut, std::ranges::find(preempted, id) != preempted.end());
    if (oldest == nullptr || model.arrival < oldest->arrival) oldest = &model;
  }
  for (const auto& [id, model] : live_) {
    const bool decoding = model.resident && std::ssize(model.known) == model.computed + 1;
    if (model.arrival >= cut || !(decoding || &model == oldest)) continue;
    ASSERT_NE(std::ranges::find(plan_.segments, id, &Segment::id), plan_.segments.end()) << id.value();
  }
}

void FakeEngine::apply_releases() {
  for (const Slot slot : plan_.preemptions) {
    Model& model = live_.at(planner_.roster().sequence(slot).spec().id);
    model.computed = 0;
    model.resident = false;
  }
}

void FakeEngine::apply_admissions() {
  for (const Admission& admission : plan_.admissions) {
    Model& model = live_.at(planner_.roster().sequence(admission.slot).spec().id);
    ASSERT_FALSE(model.resident);
    const auto shareable = static_cast<std::int32_t>(model.spec.prompt->size()) - 1;
    ASSERT_TRUE(admission.num_shared_tokens == 0 || admission.num_shared_tokens == shareable);
    num_taken_over_ += admission.takes_cached_prefix ? 1 : 0;
    model.computed = admission.num_shared_tokens;
    model.resident = true;
  }
}

// A block that this step writes is in the table of its writer alone, and no other live sequence wrote it.
void FakeEngine::check_holders() const {
  std::vector<int> holders(writers_.size());
  const auto count = [&holders](std::span<const BlockId> table) {
    for (const BlockId block : table) ++holders[index(block)];
  };
  for (const Segment& segment : plan_.segments) count(plan_.table(segment));
  for (const Slot slot : planner_.roster().residents()) {
    const RequestId id = planner_.roster().sequence(slot).spec().id;
    const bool planned = std::ranges::find(plan_.segments, id, &Segment::id) != plan_.segments.end();
    if (!planned && live_.at(id).resident) count(planner_.roster().sequence(slot).table().blocks());
  }
  for (const auto& entry : planner_.roster().prefixes().entries()) {
    const auto taken = [&entry](const Admission& a) {
      return a.takes_cached_prefix && a.group == entry.group;
    };
    const bool evicted = std::ranges::find(plan_.evictions, entry.group) != plan_.evictions.end();
    if (!evicted && std::ranges::none_of(plan_.admissions, taken)) count(entry.table.blocks());
  }
  for (const Segment& segment : plan_.segments) {
    for (std::int32_t p = segment.begin; p < segment.end; ++p) {
      const BlockId block = plan_.table(segment)[static_cast<std::size_t>(p / kv::kBlockTokens)];
      ASSERT_EQ(holders[index(block)], 1);
    }
  }
}

std::size_t FakeEngine::place(std::span<const BlockId> table, std::int32_t position) {
  const BlockId block = table[static_cast<std::size_t>(position / kv::kBlockTokens)];
  return index(block) * kv::kBlockTokens + static_cast<std::size_t>(position % kv::kBlockTokens);
}

void FakeEngine::copy(const kv::BlockCopy& copy) {
  ASSERT_NE(copy.from, copy.to);
  const auto from = memory_.begin() + std::ptrdiff_t{copy.from.value()} * kv::kBlockTokens;
  std::copy_n(from, copy.num_slots, memory_.begin() + std::ptrdiff_t{copy.to.value()} * kv::kBlockTokens);
}

// What the sequence has computed, or took over, is where its table says.
void FakeEngine::check_reads(const Segment& segment) const {
  const Model& model = live_.at(segment.id);
  ASSERT_EQ(segment.begin, model.computed);
  std::uint64_t content = kNoTokens;
  for (std::int32_t p = 0; p < segment.begin; ++p) {
    content = add_token(content, model.known[static_cast<std::size_t>(p)]);
    ASSERT_EQ(memory_[place(plan_.table(segment), p)], content)
        << "request " << segment.id.value() << " position " << p;
  }
}

void FakeEngine::compute(const Segment& segment) {
  Model& model = live_.at(segment.id);
  std::uint64_t content =
      segment.begin == 0 ? kNoTokens : memory_[place(plan_.table(segment), segment.begin - 1)];
  for (std::int32_t p = segment.begin; p < segment.end; ++p) {
    const auto row = static_cast<std::size_t>(segment.first_row + p - segment.begin);
    ASSERT_EQ(plan_.positions[row], p);
    ASSERT_EQ(plan_.tokens[row], model.known[static_cast<std::size_t>(p)]);
    ASSERT_EQ(&plan_.segments[static_cast<std::size_t>(plan_.row_segments[row])], &segment);
    content = add_token(content, plan_.tokens[row]);
    memory_[place(plan_.table(segment), p)] = content;
    RequestId& writer = writers_[index(plan_.table(segment)[static_cast<std::size_t>(p / kv::kBlockTokens)])];
    const bool new_writer = writer != segment.id;
    ASSERT_FALSE(new_writer && live_.contains(writer) && live_.at(writer).resident);
    writer = segment.id;
  }
  model.computed = segment.end;
}

Sample FakeEngine::next(const SequenceSpec& spec, std::uint64_t content) const {
  const std::uint64_t draw = mix(content, static_cast<std::uint64_t>(spec.id.value()) + 77);
  Sample sample{.token = static_cast<Token>(draw % 1000)};
  if ((draw >> 32) % stop_period_ == 0) sample.finish = FinishReason::kStopToken;
  return sample;
}

std::vector<Sample> FakeEngine::sample() {
  std::vector<Sample> samples;
  std::vector<std::int32_t> rows;
  for (const Segment& segment : plan_.segments) {
    Model& model = live_.at(segment.id);
    EXPECT_EQ(segment.wants_logits, segment.end == std::ssize(model.known));
    if (!segment.wants_logits) continue;
    rows.push_back(segment.first_row + segment.end - segment.begin - 1);
    samples.push_back(next(model.spec, memory_[place(plan_.table(segment), segment.end - 1)]));
    model.known.push_back(samples.back().token);
  }
  EXPECT_EQ(rows, plan_.logit_rows);
  return samples;
}

void FakeEngine::record(const Finished& finished) {
  const Model& model = live_.at(finished.id);
  const auto num_prompt = static_cast<std::ptrdiff_t>(model.spec.prompt->size());
  EXPECT_EQ(finished.response, std::vector<Token>(model.known.begin() + num_prompt, model.known.end()));
  if (finished.reason != FinishReason::kCancelled) {
    EXPECT_EQ(model.computed + 1, std::ssize(model.known));
    EXPECT_EQ(finished.response, naive_response(model.spec));
  }
  finished_[finished.id] = finished;
  live_.erase(finished.id);
}

std::vector<Token> FakeEngine::naive_response(const SequenceSpec& spec) const {
  std::vector<Token> response;
  std::uint64_t content = content_of(*spec.prompt);
  while (std::ssize(response) < spec.max_new_tokens) {
    const Sample sample = next(spec, content);
    response.push_back(sample.token);
    if (sample.finish) break;
    content = add_token(content, sample.token);
  }
  return response;
}

void FakeEngine::mix_digest() {
  for (const Segment& s : plan_.segments) {
    digest_ =
        mix(mix(mix(digest_, static_cast<std::uint64_t>(s.id.value())), static_cast<std::uint64_t>(s.begin)),
            static_cast<std::uint64_t>(s.end));
  }
  for (const BlockId block : plan_.tables) digest_ = mix(digest_, index(block));
  for (const kv::BlockCopy& c : plan_.copies) digest_ = mix(digest_, index(c.from));
}

}  // namespace rondo::batch
