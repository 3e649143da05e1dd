#include "train/unit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "testing/tiny_model.h"

namespace rondo::train {
namespace {

constexpr std::int32_t kBlock = kernels::kAttentionBlock;
constexpr std::int32_t kVocab = 97;

TrainUnit make_unit(std::int64_t prompt, const std::vector<std::int64_t>& lengths) {
  TrainUnit unit{testing::random_tokens(kVocab, prompt, 1), {}};
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    TrainSample sample;
    sample.tokens = testing::random_tokens(kVocab, lengths[s], static_cast<std::uint32_t>(s) + 2);
    unit.samples.push_back(std::move(sample));
  }
  return unit;
}

// What the rows mean: for each sample, the row of every position that something is predicted from.
struct NaiveRows {
  explicit NaiveRows(const TrainUnit& unit) {
    for (std::size_t p = 0; p < unit.prompt.size(); ++p) append(unit.prompt[p], p);
    for (const TrainSample& sample : unit.samples) {
      std::vector<std::int32_t> rows;
      for (std::size_t p = 0; p < unit.prompt.size(); ++p) rows.push_back(static_cast<std::int32_t>(p));
      for (std::size_t i = 0; i + 1 < sample.tokens.size(); ++i)
        rows.push_back(append(sample.tokens[i], unit.prompt.size() + i));
      row_of_position.push_back(std::move(rows));
    }
  }

  std::vector<Token> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::vector<std::int32_t>> row_of_position;  // by sample

 private:
  std::int32_t append(Token token, std::size_t position) {
    tokens.push_back(token);
    positions.push_back(static_cast<std::int32_t>(position));
    return static_cast<std::int32_t>(tokens.size()) - 1;
  }
};

std::int32_t slot(const kernels::SequenceSpan& span, std::int32_t position) {
  return span.block_table[position / kBlock] * kBlock + position % kBlock;
}

// Plays the stores and copies that the tape makes, with row numbers instead of keys and values, and expects
// every span to find at each position the row that position_rows() names.
void expect_kv_holds_the_named_rows(const UnitRows& rows, const NaiveRows& naive,
                                    const std::vector<std::size_t>& sample_of_span) {
  constexpr std::int32_t kNever = -1;
  std::vector<std::int32_t> kv(static_cast<std::size_t>(rows.kv_blocks() * kBlock), kNever);
  const auto store = [&](const kernels::SequenceSpan& span) {
    for (std::int32_t i = 0; i < span.rows; ++i) {
      const auto at = static_cast<std::size_t>(slot(span, span.first_position + i));
      ASSERT_LT(at, kv.size());
      ASSERT_EQ(kv[at], kNever) << "two rows share a slot";
      kv[at] = span.first_row + i;
    }
  };
  store(rows.spans()[0]);
  for (std::int32_t copy : rows.tail_copies()) {
    const auto from = kv.begin() + rows.tail_block() * kBlock;
    std::copy(from, from + kBlock, kv.begin() + copy * kBlock);
  }
  for (std::size_t i = 1; i < rows.spans().size(); ++i) store(rows.spans()[i]);
  for (std::size_t i = 0; i < rows.spans().size(); ++i) {
    const kernels::SequenceSpan& span = rows.spans()[i];
    const auto begin = static_cast<std::size_t>(rows.span_position_begin()[i]);
    for (std::int32_t p = 0; p < span.first_position + span.rows; ++p) {
      const auto at = static_cast<std::size_t>(p);
      const std::int32_t expected = i == 0 ? p : naive.row_of_position[sample_of_span[i]][at];
      ASSERT_EQ(rows.position_rows()[begin + at], expected) << "span " << i << " position " << p;
      ASSERT_EQ(kv[static_cast<std::size_t>(slot(span, p))], expected) << "span " << i << " position " << p;
    }
  }
}

// Every token of every sample is predicted once, from the row before it.
void expect_targets(const UnitRows& rows, const NaiveRows& naive, const TrainUnit& unit) {
  const auto& heads = rows.head_rows();
  EXPECT_TRUE(std::is_sorted(heads.begin(), heads.end()));
  EXPECT_EQ(std::adjacent_find(heads.begin(), heads.end()), heads.end());
  EXPECT_TRUE(std::is_sorted(rows.targets().begin(), rows.targets().end(), [](const auto& a, const auto& b) {
    return std::pair(a.head_row, a.sample) < std::pair(b.head_row, b.sample);
  }));
  std::map<std::pair<std::int32_t, std::int32_t>, Target> found;
  for (const Target& t : rows.targets()) EXPECT_TRUE(found.emplace(std::pair(t.sample, t.index), t).second);
  std::size_t expected = 0;
  for (std::size_t s = 0; s < unit.samples.size(); ++s) {
    const auto& tokens = unit.samples[s].tokens;
    expected += tokens.size();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto it = found.find({static_cast<std::int32_t>(s), static_cast<std::int32_t>(i)});
      ASSERT_NE(it, found.end()) << "sample " << s << " token " << i;
      EXPECT_EQ(it->second.token, tokens[i]);
      ASSERT_LT(static_cast<std::size_t>(it->second.head_row), heads.size());
      EXPECT_EQ(heads[static_cast<std::size_t>(it->second.head_row)],
                naive.row_of_position[s][unit.prompt.size() + i - 1]);
    }
  }
  EXPECT_EQ(rows.targets().size(), expected);
}

void expect_rows(std::int64_t prompt, const std::vector<std::int64_t>& lengths) {
  const TrainUnit unit = make_unit(prompt, lengths);
  const UnitRows rows(unit);
  const NaiveRows naive(unit);
  EXPECT_EQ(rows.tokens(), naive.tokens);
  EXPECT_EQ(rows.positions(), naive.positions);
  EXPECT_EQ(rows.rows(), static_cast<std::int32_t>(naive.tokens.size()));
  std::vector<std::size_t> sample_of_span = {0};
  for (std::size_t s = 0; s < lengths.size(); ++s)
    if (lengths[s] >= 2) sample_of_span.push_back(s);
  ASSERT_EQ(rows.spans().size(), sample_of_span.size());
  for (std::size_t i = 1; i < rows.spans().size(); ++i) {
    EXPECT_EQ(rows.spans()[i].first_position, prompt);
    EXPECT_EQ(rows.spans()[i].rows, lengths[sample_of_span[i]] - 1);
  }
  EXPECT_EQ(rows.tail_block() < 0, prompt % kBlock == 0);
  EXPECT_EQ(rows.tail_copies().size(), prompt % kBlock == 0 ? 0 : rows.spans().size() - 1);
  expect_kv_holds_the_named_rows(rows, naive, sample_of_span);
  expect_targets(rows, naive, unit);
}

TEST(UnitTest, RowsEqualTheNaiveModelAtEveryBlockBoundary) {
  for (std::int64_t prompt : {1, 2, 62, 63, 64, 65, 127, 128, 129})
    for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{
             {},
             {0},
             {1},
             {2},
             {0, 1, 2, 0},
             {1, 1, 1},
             {3, 0, 64, 1, 65},
             {66, 129, 2},
         }) {
      SCOPED_TRACE(::testing::Message() << "prompt " << prompt << ", " << lengths.size() << " samples");
      expect_rows(prompt, lengths);
    }
}

TEST(UnitTest, ASampleOfOneTokenHasNoRowButATarget) {
  const UnitRows rows(make_unit(5, {1}));
  EXPECT_EQ(rows.rows(), 5);
  EXPECT_EQ(rows.spans().size(), 1U);
  ASSERT_EQ(rows.targets().size(), 1U);
  EXPECT_EQ(rows.head_rows(), std::vector<std::int32_t>{4});
}

TEST(UnitTest, FullPromptBlocksAreSharedAndTheTailIsNot) {
  const UnitRows rows(make_unit(130, {3, 3}));
  const auto& spans = rows.spans();
  for (int b = 0; b < 2; ++b)
    for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(spans[i].block_table[b], spans[0].block_table[b]);
  EXPECT_EQ(rows.tail_block(), 2);
  EXPECT_EQ(rows.tail_copies(), (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(rows.kv_blocks(), 5);
}

std::int64_t unit_rows(const TrainUnit& unit) {
  return UnitRows(unit).rows();
}

TEST(UnitTest, SplitGroupKeepsOrderAndFillsEachUnit) {
  const std::vector<std::int64_t> lengths = {9, 0, 1, 30, 4, 4, 100, 2, 17, 1};
  for (std::int64_t prompt : {1, 10, 70})
    for (std::int64_t limit : {1, 12, 40, 75, 100, 1000}) {
      SCOPED_TRACE(::testing::Message() << "prompt " << prompt << ", limit " << limit);
      const TrainUnit group = make_unit(prompt, lengths);
      const std::vector<TrainUnit> units = split_group(group, limit);
      std::size_t next = 0;
      for (std::size_t u = 0; u < units.size(); ++u) {
        EXPECT_EQ(units[u].prompt, group.prompt);
        ASSERT_FALSE(units[u].samples.empty());
        EXPECT_TRUE(units[u].samples.size() == 1 || unit_rows(units[u]) <= limit);
        for (const TrainSample& sample : units[u].samples)
          EXPECT_EQ(sample.tokens, group.samples[next++].tokens);
        if (u + 1 == units.size()) continue;
        TrainUnit larger = units[u];
        larger.samples.push_back(units[u + 1].samples.front());
        EXPECT_GT(unit_rows(larger), limit) << "unit " << u << " had room for the next sample";
      }
      EXPECT_EQ(next, lengths.size());
    }
}

TEST(UnitTest, SplitGroupByHand) {
  // Rows: 10 + 8, + 0, then 10 + 29 alone, then 10 + 3 + 3.
  const std::vector<TrainUnit> units = split_group(make_unit(10, {9, 1, 30, 4, 4}), 20);
  std::vector<std::size_t> sizes;
  for (const TrainUnit& unit : units) sizes.push_back(unit.samples.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 1, 2}));
  EXPECT_TRUE(split_group(make_unit(10, {}), 20).empty());
}

}  // namespace
}  // namespace rondo::train
