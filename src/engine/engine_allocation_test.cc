// A warm decode loop allocates nothing. A binary of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <vector>

#include "engine/workload.h"

namespace {

std::atomic<std::int64_t> num_allocations = 0;

}  // namespace

// Not inlined, or the compiler sees free() meet new.
[[gnu::noinline]] void* operator new(std::size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace rondo::engine {
namespace {

constexpr std::int32_t kNewTokens = 200;

std::unique_ptr<const text::Tokenizer> byte_tokenizer() {
  const std::filesystem::path folder = ::testing::TempDir() + "/rondo_engine_allocation_test_model";
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(testing::write_tiny_model_folder(folder, 1));
  auto tokenizer = text::Tokenizer::from_file(folder / "tokenizer.json").value();
  std::filesystem::remove_all(folder);
  return tokenizer;
}

// Every kind of sampling, a stop string, all of the same length.
std::vector<Request> requests() {
  std::vector<Request> all;
  for (std::uint32_t i = 0; i < 12; ++i) {
    Request request = simple_request(i, testing::random_tokens(97, 50, i / 4), kNewTokens);
    request.group = GroupId(i / 4);
    request.counter.sample = i;
    if (i % 4 == 1) request.sampling.temperature = 0;
    if (i % 4 == 2) request.sampling.top_k = 7;
    if (i % 4 == 3) request.sampling.top_p = 0.8F;
    request.stop = std::make_shared<const StopRules>(
        StopRules{.tokens = {1000}, .strings = {"a string too long to come up by chance"}});
    all.push_back(std::move(request));
  }
  return all;
}

TEST(EngineAllocationTest, DecodeStepsAllocateNothing) {
  const auto model = testing::random_model(testing::tiny_spec(kernels::DType::kF16), 1);
  const auto tokenizer = byte_tokenizer();
  TestEngine engine(*model, {.max_running = 12, .threads = 2}, tokenizer.get());
  std::vector<Response> finished;
  int num_counted = 0;
  // In the first round the buffers reach their size.
  for (int round = 0; round < 2; ++round) {
    for (const Request& request : requests()) ASSERT_TRUE(engine->submit(request));
    for (int step = 0; !engine->idle(); ++step) {
      const std::int64_t before = num_allocations;
      ASSERT_TRUE(engine->step(finished));
      // The first steps admit; the siblings of a prompt come one step later.
      if (round == 0 || step < 3 || !finished.empty()) continue;
      ASSERT_EQ(num_allocations, before) << "in step " << step;
      ++num_counted;
    }
    ASSERT_EQ(finished.size(), 12U);
    finished.clear();
  }
  EXPECT_GT(num_counted, kNewTokens / 2);  // several new blocks each
}

}  // namespace
}  // namespace rondo::engine
