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

FakeEngine::FakeEngine(Planner& planner, const Behaviour& behaviour)
    : planner_(planner), behaviour_(behaviour), random_(behaviour.seed) {
  const auto num_blocks = static_cast<std::size_t>(planner.roster().pool().num_blocks());
  memory_.resize(num_blocks * kv::kBlockTokens);
  writers_.resize(num_blocks);
}

bool FakeEngine::failed() const {
  return testing::Test::HasFailure();
}

std::int32_t FakeEngine::draw_chunk() {
  if (behaviour_.max_chunk == 0) return 0;
  return 1 + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(behaviour_.max_chunk));
}

void FakeEngine::add(SequenceSpec spec) {
  spec.chunk_tokens = draw_chunk();
  submit({.spec = spec, .known = *spec.prompt});
}

void FakeEngine::submit(Model model) {
  const auto slot = planner_.add(model.spec);
  ASSERT_TRUE(slot) << slot.error().to_string();
  planner_.check_invariants();
  model.arrival = next_arrival_++;
  const RequestId id = model.spec.id;
  live_[id] = std::move(model);
}

void FakeEngine::handle_parked() {
  std::vector<RequestId> parked;
  for (const auto& [id, model] : live_) {
    if (model.parked && happens(40)) parked.push_back(id);
  }
  for (const RequestId id : parked) {
    if (happens(50)) {
      ASSERT_TRUE(planner_.resume(id, draw_chunk()));
      live_.at(id).parked = false;
    } else {
      move(id, happens(70));
    }
    planner_.check_invariants();
  }
}

// Away and back again, as if from another instance.
void FakeEngine::move(RequestId id, bool with_kv) {
  Model model = live_.at(id);
  with_kv = with_kv && model.resident;
  model.stored.clear();
  if (with_kv) {
    const Sequence& sequence = planner_.roster().sequence(*planner_.roster().find(id));
    for (const BlockId block : sequence.table().blocks()) {
      const auto from = memory_.begin() + std::ptrdiff_t{block.value()} * kv::kBlockTokens;
      model.stored.insert(model.stored.end(), from, from + kv::kBlockTokens);
    }
  }
  const auto taken = planner_.cancel(id);
  ASSERT_TRUE(taken);
  std::ranges::replace(writers_, id, RequestId());
  model.spec.response = taken->response;
  model.spec.num_stored = with_kv ? model.computed : 0;
  model.spec.chunk_tokens = draw_chunk();
  model.computed = 0;
  model.resident = model.parked = false;
  submit(std::move(model));
}

// Random trees in which about two nodes of three hold the token that the model will draw there.
void FakeEngine::make_drafts() {
  drafts_.clear();
  for (const auto& [id, model] : live_) {
    const bool decoding = model.resident && !model.parked && std::ssize(model.known) == model.computed + 1;
    if (!decoding || !happens(behaviour_.draft_percent)) continue;
    const auto size = 1 + static_cast<std::int32_t>(random_() % 12);
    const bool chain = happens(50);
    std::vector<Token> tokens;
    std::vector<std::int32_t> parents;
    std::vector<std::uint64_t> contents;
    for (std::int32_t node = 0; node < size; ++node) {
      const auto any = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(node + 1));
      parents.push_back(chain ? node - 1 : any - 1);
      const std::uint64_t before =
          parents.back() < 0 ? content_of(model.known) : contents[static_cast<std::size_t>(parents.back())];
      const Token truth = next(model.spec, before).token;
      tokens.push_back(happens(65) ? truth : static_cast<Token>(random_() % 1000));
      contents.push_back(add_token(before, tokens.back()));
      if (std::ranges::count(contents, contents.back()) > 1) {
        tokens.back() = 1000 + node;  // siblings differ
        contents.back() = add_token(before, tokens.back());
      }
    }
    const Slot slot = *planner_.roster().find(id);
    chain ? drafts_.add_chain(slot, tokens) : drafts_.add(slot, tokens, parents);
  }
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
  handle_parked();
  forget_writers_of_free_blocks();
  make_drafts();
  planner_.plan(plan_, drafts_);
  planner_.check_invariants();
  mix_digest();
  check_limits();
  check_priorities();
  apply_releases();
  apply_admissions();
  check_holders();
  for (const Restore& r : plan_.restores) restore(r);
  for (const kv::BlockCopy& c : plan_.copies) copy(c);
  for (const Segment& segment : plan_.segments) check_reads(plan_.table(segment), segment.begin, segment);
  row_contents_.assign(plan_.tokens.size(), 0);
  for (const Segment& segment : plan_.segments) compute(segment);
  if (failed()) return;
  planner_.commit(plan_, sample(), outcome_);
  planner_.check_invariants();
  for (const Finished& finished : outcome_.finished) record(finished);
  for (const Segment& segment : plan_.segments) check_progress(segment);
  for (const Planner::Parked& parked : outcome_.parked) {
    Model& model = live_.at(parked.id);
    model.parked = true;
    ASSERT_EQ(std::ssize(model.known), std::ssize(*model.spec.prompt) + parked.num_response);
  }
  forget_writers_of_free_blocks();
}

void FakeEngine::forget_writers_of_free_blocks() {
  for (std::size_t b = 0; b < writers_.size(); ++b) {
    const BlockId block(static_cast<std::int32_t>(b));
    if (planner_.roster().pool().ref_count(block) == 0) writers_[b] = RequestId();
  }
}

void FakeEngine::check_limits() const {
  const bool runnable = std::ranges::any_of(live_, [](const auto& entry) { return !entry.second.parked; });
  std::int32_t num_rows = 0;
  for (const Segment& segment : plan_.segments) {
    ASSERT_LT(segment.begin, segment.end);
    ASSERT_EQ(segment.first_row, num_rows);
    num_rows += segment.num_rows;
    ASSERT_GE(segment.num_rows, segment.end - segment.begin + segment.num_drafts);
    ASSERT_GE(segment.table_size, kv::blocks_for(segment.end + segment.num_drafts));
    ASSERT_TRUE(live_.contains(segment.id));
  }
  ASSERT_EQ(num_rows, plan_.num_rows());
  ASSERT_LE(num_rows, planner_.limits().max_batch_tokens);
  ASSERT_LE(std::ssize(plan_.segments), planner_.limits().max_running);
  ASSERT_TRUE(plan_.admissions.empty() || num_running() <= planner_.limits().max_running);
  ASSERT_EQ(num_rows == 0, !runnable);
}

std::int64_t FakeEngine::num_running() const {
  const auto runs = [](const auto& entry) { return entry.second.resident && !entry.second.parked; };
  return std::ranges::count_if(live_, runs) + std::ssize(plan_.admissions) - std::ssize(plan_.preemptions);
}

// The preempted are the latest arrivals; of the first max_running residents, the oldest and every decoding
// one advance.
void FakeEngine::check_priorities() const {
  std::vector<RequestId> preempted;
  std::int64_t cut = next_arrival_;
  for (const Slot slot : plan_.preemptions) {
    const Sequence& sequence = planner_.roster().sequence(slot);
    preempted.push_back(sequence.spec().id);
    cut = std::min(cut, sequence.arrival());
  }
  std::map<std::int64_t, const Model*> running;  // by arrival
  for (const auto& [id, model] : live_) {
    if (!model.resident || model.parked) continue;
    ASSERT_EQ(model.arrival >= cut, std::ranges::find(preempted, id) != preempted.end());
    if (model.arrival < cut) running.emplace(model.arrival, &model);
  }
  std::int32_t place = 0;
  for (const auto& [arrival, model] : running) {
    if (place == planner_.limits().max_running) break;
    const bool decoding = std::ssize(model->known) == model->computed + 1;
    if (!decoding && place++ > 0) continue;
    ASSERT_NE(std::ranges::find(plan_.segments, model->spec.id, &Segment::id), plan_.segments.end());
    place += decoding ? 1 : 0;
  }
}

void FakeEngine::apply_releases() {
  std::vector<Slot> released = plan_.preemptions;
  released.insert(released.end(), plan_.parked_evictions.begin(), plan_.parked_evictions.end());
  for (const Slot slot : released) {
    const RequestId id = planner_.roster().sequence(slot).spec().id;
    live_.at(id).computed = 0;
    live_.at(id).resident = false;
    std::ranges::replace(writers_, id, RequestId());
  }
}

void FakeEngine::apply_admissions() {
  for (const Admission& admission : plan_.admissions) {
    Model& model = live_.at(planner_.roster().sequence(admission.slot).spec().id);
    ASSERT_FALSE(model.resident);
    const auto shareable = static_cast<std::int32_t>(model.spec.prompt->size()) - 1;
    ASSERT_TRUE(admission.num_shared_tokens == 0 || admission.num_shared_tokens == shareable);
    num_taken_over_ += admission.takes_cached_prefix ? 1 : 0;
    ASSERT_TRUE(admission.num_ready_tokens == admission.num_shared_tokens ||
                admission.num_ready_tokens == model.spec.num_stored);
    model.spec.num_stored = 0;
    model.computed = admission.num_ready_tokens;
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
  for (const Branch& branch : plan_.branches) count(plan_.own_blocks(branch));
  std::vector<Slot> holding(planner_.roster().residents().begin(), planner_.roster().residents().end());
  holding.insert(holding.end(), planner_.roster().parked().begin(), planner_.roster().parked().end());
  for (const Slot slot : holding) {
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
    for (std::int32_t p = segment.begin; p < segment.end + segment.num_drafts; ++p) {
      const BlockId block = plan_.table(segment)[static_cast<std::size_t>(p / kv::kBlockTokens)];
      ASSERT_EQ(holders[index(block)], 1);
    }
  }
  for (const Branch& branch : plan_.branches) {
    for (const BlockId block : plan_.own_blocks(branch)) ASSERT_EQ(holders[index(block)], 1);
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

void FakeEngine::restore(const Restore& restore) {
  const auto slot = std::ranges::find(plan_.admissions, restore.slot, &Admission::slot);
  ASSERT_NE(slot, plan_.admissions.end());
  const Model& model = live_.at(planner_.roster().sequence(restore.slot).spec().id);
  for (std::int32_t b = restore.first_block; b < restore.first_block + restore.num_blocks; ++b) {
    const BlockId block = plan_.tables[static_cast<std::size_t>(restore.table_begin + b)];
    const auto from = model.stored.begin() + std::ptrdiff_t{b} * kv::kBlockTokens;
    ASSERT_LE((b + 1) * kv::kBlockTokens, std::ssize(model.stored));
    std::copy_n(from, kv::kBlockTokens, memory_.begin() + std::ptrdiff_t{block.value()} * kv::kBlockTokens);
  }
}

// What the sequence has computed, or took over, or got back, is where its table says.
void FakeEngine::check_reads(std::span<const BlockId> table, std::int32_t end, const Segment& segment) const {
  const Model& model = live_.at(segment.id);
  ASSERT_EQ(segment.begin, model.computed);
  std::uint64_t content = kNoTokens;
  for (std::int32_t p = 0; p < end; ++p) {
    content = add_token(content, model.known[static_cast<std::size_t>(p)]);
    ASSERT_EQ(memory_[place(table, p)], content) << "request " << segment.id.value() << " position " << p;
  }
}

void FakeEngine::write(RequestId id, std::span<const BlockId> table, std::int32_t position,
                       std::uint64_t content) {
  memory_[place(table, position)] = content;
  RequestId& writer = writers_[index(table[static_cast<std::size_t>(position / kv::kBlockTokens)])];
  const bool new_writer = writer != id;
  ASSERT_FALSE(new_writer && live_.contains(writer) && live_.at(writer).resident);
  writer = id;
}

void FakeEngine::compute_row(const Segment& segment, std::span<const BlockId> table, std::int32_t row,
                             std::uint64_t before) {
  const auto r = static_cast<std::size_t>(row);
  ASSERT_EQ(&plan_.segments[static_cast<std::size_t>(plan_.row_segments[r])], &segment);
  row_contents_[r] = add_token(before, plan_.tokens[r]);
  write(segment.id, table, plan_.positions[r], row_contents_[r]);
}

void FakeEngine::compute(const Segment& segment) {
  const Model& model = live_.at(segment.id);
  const auto table = plan_.table(segment);
  for (std::int32_t row = segment.first_row; row < segment.end_chain_row(); ++row) {
    const std::int32_t p = segment.begin + row - segment.first_row;
    ASSERT_EQ(plan_.positions[static_cast<std::size_t>(row)], p);
    if (p < segment.end) {
      ASSERT_EQ(plan_.tokens[static_cast<std::size_t>(row)], model.known[static_cast<std::size_t>(p)]);
    }
    compute_row(segment, table, row, p == 0 ? kNoTokens : memory_[place(table, p - 1)]);
  }
  for (const Branch& branch : plan_.branches_of(segment)) compute_branch(segment, branch);
}

std::span<const BlockId> FakeEngine::branch_table(const Branch& branch) const {
  return std::span(plan_.tables)
      .subspan(static_cast<std::size_t>(branch.table_begin), static_cast<std::size_t>(branch.table_size));
}

// A branch reads from its own table alone: the stores before its rows must have filled it.
void FakeEngine::compute_branch(const Segment& segment, const Branch& branch) {
  const auto table = branch_table(branch);
  check_reads(table, segment.end - 1, segment);
  for (const ExtraStore& store : plan_.stores) {
    if (store.table_begin != branch.table_begin) continue;
    for (std::int32_t i = 0; i < store.num_rows; ++i) {
      const auto row = static_cast<std::size_t>(store.first_row + i);
      ASSERT_EQ(plan_.positions[row], store.position + i);
      write(segment.id, table, store.position + i, row_contents_[row]);
    }
  }
  const std::uint64_t parent = row_contents_[static_cast<std::size_t>(branch.parent_row)];
  ASSERT_EQ(memory_[place(table, branch.position - 1)], parent);
  for (std::int32_t i = 0; i < branch.num_rows; ++i) {
    ASSERT_EQ(plan_.positions[static_cast<std::size_t>(branch.first_row + i)], branch.position + i);
    compute_row(segment, table, branch.first_row + i, memory_[place(table, branch.position + i - 1)]);
  }
}

Sample FakeEngine::next(const SequenceSpec& spec, std::uint64_t content) const {
  const std::uint64_t draw = mix(content, static_cast<std::uint64_t>(spec.id.value()) + 77);
  Sample sample{.token = static_cast<Token>(draw % 1000)};
  if ((draw >> 32) % behaviour_.stop_period == 0) sample.finish = FinishReason::kStopToken;
  return sample;
}

std::vector<Sample> FakeEngine::sample() const {
  std::vector<Sample> samples;
  std::vector<std::int32_t> rows;
  for (const Segment& segment : plan_.segments) {
    const Model& model = live_.at(segment.id);
    EXPECT_EQ(segment.wants_logits, segment.end == std::ssize(model.known));
    if (!segment.wants_logits) continue;
    EXPECT_EQ(segment.first_logit, std::ssize(samples));
    for (std::int32_t row = segment.root_row(); row < segment.first_row + segment.num_rows; ++row) {
      rows.push_back(row);
      samples.push_back(next(model.spec, row_contents_[static_cast<std::size_t>(row)]));
    }
  }
  EXPECT_EQ(rows, plan_.logit_rows);
  return samples;
}

// The most tokens of the true continuation that some row of the segment has computed.
std::int32_t FakeEngine::longest_agreement(const Segment& segment, std::span<const Token> truth) const {
  std::int32_t length = 0;
  std::uint64_t content = row_contents_[static_cast<std::size_t>(segment.root_row())];
  const auto rows =
      std::span(row_contents_)
          .subspan(static_cast<std::size_t>(segment.first_row), static_cast<std::size_t>(segment.num_rows));
  for (const Token token : truth) {
    content = add_token(content, token);
    if (std::ranges::find(rows, content) == rows.end()) break;
    ++length;
  }
  return length;
}

// A sequence has the tokens that plain decoding gives it, as many as its rows verify, and is computed up to
// the last but one.
void FakeEngine::check_progress(const Segment& segment) {
  const auto ended = finished_.find(segment.id);
  const auto live = live_.find(segment.id);
  if (live == live_.end()) {
    ASSERT_NE(ended, finished_.end());
    return;
  }
  Model& model = live->second;
  const Sequence& sequence = planner_.roster().sequence(segment.slot);
  const std::vector<Token> before = model.known;
  std::uint64_t content = content_of(model.known);
  while (std::ssize(model.known) < sequence.num_known()) {
    model.known.push_back(next(model.spec, content).token);
    ASSERT_EQ(sequence.token(static_cast<std::int32_t>(model.known.size()) - 1), model.known.back());
    content = add_token(content, model.known.back());
  }
  model.computed = sequence.num_computed();
  if (!segment.wants_logits) {
    ASSERT_EQ(model.computed, segment.end);
    return;
  }
  ASSERT_EQ(model.computed + 1, std::ssize(model.known));
  const std::vector<Token> added(model.known.begin() + std::ssize(before), model.known.end());
  ASSERT_EQ(longest_agreement(segment, added) + 1, std::ssize(added)) << "a right draft was not accepted";
  const std::uint64_t last = content_of(std::span(model.known).first(model.known.size() - 1));
  for (const Branch& branch : plan_.branches_of(segment)) {
    const auto rows =
        std::span(row_contents_)
            .subspan(static_cast<std::size_t>(branch.first_row), static_cast<std::size_t>(branch.num_rows));
    num_branch_rows_accepted_ += std::ranges::find(rows, last) != rows.end() ? 1 : 0;
  }
}

void FakeEngine::record(const Finished& finished) {
  const Model& model = live_.at(finished.id);
  if (finished.reason == FinishReason::kCancelled) {
    const auto num_prompt = std::ssize(*model.spec.prompt);
    EXPECT_EQ(finished.response, std::vector<Token>(model.known.begin() + num_prompt, model.known.end()));
  } else {
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
