#include "text/word_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace rondo::text {
namespace {

std::vector<Token> ids_of(int word) {
  return std::vector<Token>(1 + static_cast<std::size_t>(word) % WordCache::kMaxIds, Token{word});
}

TEST(WordCacheTest, FindsWhatItKeeps) {
  WordCache cache(4);
  const auto key = *WordCache::key_of(" the");
  std::vector<Token> out;
  EXPECT_FALSE(cache.find(key, out));
  const std::vector<Token> ids = {3, 1, 4};
  cache.insert(key, ids.data(), ids.size());
  EXPECT_TRUE(cache.find(key, out));
  EXPECT_TRUE(cache.find(key, out));
  EXPECT_EQ(out, (std::vector<Token>{3, 1, 4, 3, 1, 4}));
}

TEST(WordCacheTest, TellsWordsWithZeroBytesApart) {
  WordCache cache(1);
  const Token id = 7;
  cache.insert(*WordCache::key_of(std::string("a\0", 2)), &id, 1);
  std::vector<Token> out;
  EXPECT_FALSE(cache.find(*WordCache::key_of("a"), out));
  EXPECT_TRUE(cache.find(*WordCache::key_of(std::string("a\0", 2)), out));
}

TEST(WordCacheTest, KeepsAWordThatGivesNoIds) {
  WordCache cache(1);
  const auto key = *WordCache::key_of("gone");
  cache.insert(key, nullptr, 0);
  std::vector<Token> out;
  EXPECT_TRUE(cache.find(key, out));
  EXPECT_TRUE(out.empty());
}

TEST(WordCacheTest, LeavesLongWordsAndLongAnswersOut) {
  EXPECT_TRUE(WordCache::key_of(std::string(WordCache::kMaxBytes, 'x')).has_value());
  EXPECT_FALSE(WordCache::key_of(std::string(WordCache::kMaxBytes + 1, 'x')).has_value());
  WordCache cache(4);
  const auto key = *WordCache::key_of("word");
  const std::vector<Token> ids(WordCache::kMaxIds + 1, 5);
  cache.insert(key, ids.data(), ids.size());
  std::vector<Token> out;
  EXPECT_FALSE(cache.find(key, out));
}

// Four threads fight over four slots; whatever is found must be what belongs to the word.
TEST(WordCacheTest, ThreadsNeverSeeAnotherWordsIds) {
  WordCache cache(2);
  std::vector<std::thread> threads;
  std::atomic<int> hits{0};
  std::atomic<int> wrong{0};
  for (int seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      for (int i = 0; i < 20000; ++i) {
        const int word = (i * (2 * seed + 1)) % 8;
        const auto key = *WordCache::key_of("word" + std::to_string(word));
        std::vector<Token> out;
        if (cache.find(key, out)) {
          ++hits;
          if (out != ids_of(word)) ++wrong;
        } else {
          const std::vector<Token> ids = ids_of(word);
          cache.insert(key, ids.data(), ids.size());
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 0);
}

}  // namespace
}  // namespace rondo::text
