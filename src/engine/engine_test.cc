#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "engine/workload.h"

namespace rondo::engine {
namespace {

using batch::FinishReason;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::unique_ptr<model::Model> tiny_model(std::uint32_t seed = 1) {
  return testing::random_model(testing::tiny_spec(kernels::DType::kF32), seed);
}

Request greedy_request(std::int64_t id, std::vector<Token> prompt, std::int32_t max_new_tokens) {
  Request request = simple_request(id, std::move(prompt), max_new_tokens);
  request.sampling.temperature = 0;
  return request;
}

std::shared_ptr<const StopRules> stop_at(std::vector<Token> tokens, std::vector<std::string> strings = {}) {
  return std::make_shared<const StopRules>(
      StopRules{.tokens = std::move(tokens), .strings = std::move(strings)});
}

// The logits behind the last of `tokens`, in one pass over all of them.
std::vector<float> logits_after(const model::Model& model, const std::vector<Token>& tokens) {
  const testing::Compute compute;
  KvStorage kv = KvStorage::create(model.spec(), 8).value();
  const auto rows = static_cast<std::int32_t>(tokens.size());
  Forward forward(model, kv, compute.context(), rows);
  const std::int32_t table[] = {7, 1, 2, 6, 5, 4, 3, 0}, last[] = {rows - 1};
  const kernels::SequenceSpan span{.block_table = table, .first_position = 0, .first_row = 0, .rows = rows};
  std::vector<std::int32_t> positions(tokens.size());
  for (std::int32_t i = 0; i < rows; ++i) positions[static_cast<std::size_t>(i)] = i;
  forward.run({.tokens = tokens, .positions = positions, .spans = {&span, 1}});
  const float* logits = forward.logits(last);
  return {logits, logits + model.spec().vocab};
}

// log-softmax(logits)[token] and the entropy, in double precision.
std::pair<double, double> score(const std::vector<float>& logits, Token token) {
  double sum = 0, weighted = 0;
  for (float x : logits) {
    sum += std::exp(double{x});
    weighted += double{x} * std::exp(double{x});
  }
  return {double{logits[static_cast<std::size_t>(token)]} - std::log(sum), std::log(sum) - weighted / sum};
}

TEST(EngineTest, GreedyPicksTheGreatestLogitAndRecordsItsScore) {
  const auto model = tiny_model();
  std::vector<Token> known = testing::random_tokens(97, 61, 3);
  TestEngine engine(*model, {});
  const Responses responses = run_all(engine, {greedy_request(0, known, 10)});
  ASSERT_EQ(responses[0].tokens.size(), 10U);
  EXPECT_EQ(responses[0].reason, FinishReason::kLength);
  for (std::size_t i = 0; i < 10; ++i) {
    const std::vector<float> logits = logits_after(*model, known);
    const auto best = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    EXPECT_EQ(responses[0].tokens[i], best);
    const auto [logprob, entropy] = score(logits, best);
    // The logits are below 8 and sums of 97 terms take a relative error of a few 2^-24.
    EXPECT_NEAR(responses[0].logprobs[i], logprob, 4e-6);
    EXPECT_NEAR(responses[0].entropies[i], entropy, 4e-6);
    known.push_back(best);
  }
}

// The random number of a token is the one at (step, ordinal, sample, place in the response).
TEST(EngineTest, DrawsWithTheCounterOfEachPlaceInTheResponse) {
  const auto model = tiny_model();
  const testing::Compute compute;
  std::vector<Token> known = testing::random_tokens(97, 20, 3);
  Request request = simple_request(0, known, 30);
  request.counter = {.step = 4, .ordinal = 5, .sample = 6};
  const Response response = run_all(*model, {}, {request})[0];
  kernels::SamplingScratch scratch;
  for (std::uint32_t place = 0; place < 30; ++place) {
    const RngCounter counter{.step = 4, .ordinal = 5, .sample = 6, .position = place};
    const auto drawn =
        kernels::sample(*compute.context().table, logits_after(*model, known), request.sampling,
                        {request.rng, counter}, model->spec().chains(), scratch);
    ASSERT_TRUE(drawn);
    ASSERT_EQ(response.tokens[place], drawn->token) << "at " << place;
    ASSERT_EQ(response.logprobs[place], drawn->logprob) << "at " << place;
    known.push_back(drawn->token);
  }
}

TEST(EngineTest, SamplesOfAGroupDiffer) {
  const auto model = tiny_model();
  std::vector<Request> requests;
  for (std::uint32_t sample = 0; sample < 4; ++sample) {
    requests.push_back(simple_request(sample, testing::random_tokens(97, 20, 3), 12));
    requests.back().group = GroupId(1);
    requests.back().counter = {.ordinal = 1, .sample = sample};
  }
  const Responses responses = run_all(*model, {}, requests);
  for (std::int64_t a = 0; a < 4; ++a)
    for (std::int64_t b = 0; b < a; ++b) EXPECT_NE(responses[a].tokens, responses[b].tokens);
}

TEST(EngineTest, LengthLimitEndsAResponse) {
  const auto model = tiny_model();
  std::vector<Request> requests;
  for (std::int32_t length : {1, 2, 63, 64, 65}) requests.push_back(simple_request(length, {5, 6}, length));
  const Responses responses = run_all(*model, {}, requests);
  for (const auto& [length, response] : responses.by_id) {
    EXPECT_EQ(std::ssize(response.tokens), length);
    EXPECT_EQ(response.logprobs.size(), response.tokens.size());
    EXPECT_EQ(response.entropies.size(), response.tokens.size());
    EXPECT_EQ(response.reason, FinishReason::kLength);
  }
}

TEST(EngineTest, StopTokenEndsAResponseAndBelongsToIt) {
  const auto model = tiny_model();
  const Responses free = run_all(*model, {}, {simple_request(0, {5, 6}, 60)});
  const std::vector<Token>& tokens = free[0].tokens;
  const auto first = std::ranges::find(tokens, tokens[30]);
  Request request = simple_request(0, {5, 6}, 60);
  request.stop = stop_at({tokens[30], 1000});
  const Responses stopped = run_all(*model, {}, {request});
  EXPECT_EQ(stopped[0].reason, FinishReason::kStopToken);
  EXPECT_THAT(stopped[0].tokens, ElementsAreArray(tokens.begin(), first + 1));
}

TEST(EngineTest, StopTokenOnTheLastPlaceCountsAsStop) {
  const auto model = tiny_model();
  const Responses free = run_all(*model, {}, {greedy_request(0, {5, 6}, 1)});
  Request request = greedy_request(0, {5, 6}, 1);
  request.stop = stop_at(free[0].tokens);
  EXPECT_EQ(run_all(*model, {}, {request})[0].reason, FinishReason::kStopToken);
}

// A model folder with a byte tokenizer: ids below 128 are ASCII characters.
class EngineStopStringTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = ::testing::TempDir() + "/rondo_engine_test_model";
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(testing::write_tiny_model_folder(folder, 1));
    tokenizer_ = text::Tokenizer::from_file(folder / "tokenizer.json").value();
    std::filesystem::remove_all(folder);
    model::ModelSpec spec = testing::tiny_spec();
    spec.vocab = 128;
    model_ = testing::random_model(spec, 2);
  }

  Responses run(const Request& request) {
    TestEngine engine(*model_, {}, tokenizer_.get());
    return run_all(engine, {request});
  }

  std::unique_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<model::Model> model_;
};

TEST_F(EngineStopStringTest, EndsWithTheTokenThatCompletesTheString) {
  const Request free = simple_request(0, {5, 6}, 90);
  const std::vector<Token> tokens = run(free)[0].tokens;
  for (const std::size_t length : {1, 2, 5}) {
    const std::string text = tokenizer_->decode(tokens, false);
    const std::string stop = text.substr(70, length);
    const auto end = static_cast<std::ptrdiff_t>(text.find(stop) + length);
    Request request = free;
    request.stop = stop_at({}, {"never\n to be seen", stop, ""});
    const Responses stopped = run(request);
    EXPECT_EQ(stopped[0].reason, FinishReason::kStopString);
    EXPECT_THAT(stopped[0].tokens, ElementsAreArray(tokens.begin(), tokens.begin() + end)) << length;
  }
}

// Over the places that a stop may have in a draft: with drafts that go on beyond it, the response ends there.
class DraftsBeyondAStop final {
 public:
  static constexpr std::int32_t kDraft = 8;

  DraftsBeyondAStop(const model::Model& model, std::vector<Token> truth, const text::Tokenizer* tokenizer)
      : model_(model), truth_(std::move(truth)), tokenizer_(tokenizer) {}

  void expect_cut(const Request& request, std::ptrdiff_t end, FinishReason reason) {
    TestEngine plain(model_, {}, tokenizer_), drafted(model_, {}, tokenizer_);
    std::size_t drafted_to = 0;
    drafted->set_drafter([&](std::span<const DraftContext> contexts, batch::Drafts& drafts) {
      for (const DraftContext& context : contexts) {
        const std::size_t known = context.response.size();
        const auto count = static_cast<std::size_t>(std::min(kDraft, context.max_tokens));
        drafted_to = std::min(known + count, truth_.size());
        drafts.add_chain(context.slot, std::span(truth_).subspan(known, drafted_to - known));
      }
    });
    const Response response = run_all(drafted, {request})[0];
    EXPECT_EQ(difference(run_all(plain, {request})[0], response), "") << "end " << end;
    EXPECT_EQ(response.reason, reason);
    EXPECT_THAT(response.tokens, ElementsAreArray(truth_.begin(), truth_.begin() + end));
    if (drafted_to > static_cast<std::size_t>(end) && drafted->stats().accepted_tokens > 0) ++num_inside_;
  }
  /// Of the cuts, those with drafted tokens behind them in the same step.
  int num_inside() const { return num_inside_; }

 private:
  const model::Model& model_;
  std::vector<Token> truth_;
  const text::Tokenizer* tokenizer_;
  int num_inside_ = 0;
};

TEST(EngineTest, AStopTokenInsideADraftEndsTheResponseThere) {
  const auto model = tiny_model();
  const Request free = simple_request(0, {5, 6}, 60);
  const std::vector<Token> tokens = run_all(*model, {}, {free})[0].tokens;
  DraftsBeyondAStop drafts(*model, tokens, nullptr);
  for (std::ptrdiff_t place = 10; place < 40; ++place) {
    Request request = free;
    request.stop = stop_at({tokens[static_cast<std::size_t>(place)]});
    const auto end = std::ranges::find(tokens, request.stop->tokens[0]) - tokens.begin() + 1;
    drafts.expect_cut(request, end, FinishReason::kStopToken);
  }
  EXPECT_GT(drafts.num_inside(), 15);
}

TEST_F(EngineStopStringTest, AStopStringInsideADraftEndsTheResponseThere) {
  const Request free = simple_request(0, {5, 6}, 90);
  const std::vector<Token> tokens = run(free)[0].tokens;
  const std::string text = tokenizer_->decode(tokens, false);
  ASSERT_EQ(text.size(), tokens.size());
  DraftsBeyondAStop drafts(*model_, tokens, tokenizer_.get());
  for (const std::size_t length : {1, 2, 5}) {
    for (std::size_t place = 40; place < 56; ++place) {
      const std::string stop = text.substr(place, length);
      Request request = free;
      request.stop = stop_at({}, {"never\n to be seen", stop});
      drafts.expect_cut(request, static_cast<std::ptrdiff_t>(text.find(stop) + length),
                        FinishReason::kStopString);
    }
  }
  EXPECT_GT(drafts.num_inside(), 30);
}

TEST_F(EngineStopStringTest, NeedsATokenizer) {
  TestEngine engine(*model_, {});
  Request request = simple_request(0, {5, 6}, 9);
  request.stop = stop_at({}, {"x"});
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("tokenizer"));
}

TEST(EngineTest, RefusesWhatCanNeverRunAndStaysUsable) {
  const auto model = tiny_model();
  TestEngine engine(*model, {.num_blocks = 3});
  const auto expect_refused = [&](Request request, Code code, const std::string& part) {
    const auto refused = engine->submit(std::move(request));
    ASSERT_FALSE(refused) << part;
    EXPECT_EQ(refused.error().code(), code);
    EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("request 8"), HasSubstr(part)));
  };
  ASSERT_TRUE(engine->submit(simple_request(1, {1, 2, 3}, 20)));
  Request no_prompt = simple_request(8, {}, 5);
  expect_refused(no_prompt, Code::kInvalidArgument, "prompt is empty");
  no_prompt.prompt = nullptr;
  expect_refused(no_prompt, Code::kInvalidArgument, "prompt is empty");
  expect_refused(simple_request(8, {3, 97, 4}, 5), Code::kInvalidArgument, "token id 97");
  expect_refused(simple_request(8, {3, -1, 4}, 5), Code::kInvalidArgument, "token id -1");
  expect_refused(simple_request(8, {3, 4}, 511), Code::kInvalidArgument, "512 positions");
  expect_refused(simple_request(8, {3, 4}, 192), Code::kResourceExhausted, "needs 4 KV blocks");
  expect_refused(simple_request(8, {3, 4}, 0), Code::kInvalidArgument, "max_new_tokens is 0");
  Request other_prompt = simple_request(8, {3, 4}, 5);
  other_prompt.group = GroupId(1);
  expect_refused(other_prompt, Code::kInvalidArgument, "differs from that of its group 1");

  ASSERT_TRUE(engine->submit(simple_request(8, {3, 4}, 191)));
  const Responses found = run_to_end(engine);
  const Responses expected =
      run_all(*model, {}, {simple_request(1, {1, 2, 3}, 20), simple_request(8, {3, 4}, 191)});
  EXPECT_EQ(difference(expected, found), "");
}

TEST(EngineTest, RefusesImpossibleSampling) {
  const auto model = tiny_model();
  TestEngine engine(*model, {});
  Request request = simple_request(8, {3, 4}, 5);
  request.sampling.temperature = -1;
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("temperature"));
  EXPECT_TRUE(engine->idle());
}

TEST(EngineTest, PoolWithoutABlockIsAnError) {
  const auto model = tiny_model();
  const testing::Compute compute;
  Engine::Config config;
  config.kv_memory.bytes = static_cast<std::int64_t>(KvStorage::block_bytes(model->spec())) - 1;
  const auto engine = Engine::create(config, *model, nullptr, compute.context());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(engine.error().message(), HasSubstr("engine.kv_memory"));
}

TEST(EngineTest, CancelReturnsWhatThereIs) {
  const auto model = tiny_model();
  TestEngine engine(*model, {.max_running = 1});
  ASSERT_TRUE(engine->submit(simple_request(1, {1, 2, 3}, 20)));
  ASSERT_TRUE(engine->submit(simple_request(2, {1, 2}, 20)));
  std::vector<Response> finished;
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(engine->step(finished));
  const auto running = engine->cancel(RequestId(1)), waiting = engine->cancel(RequestId(2));
  ASSERT_TRUE(running);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(running->tokens.size(), 5U);
  EXPECT_EQ(running->logprobs.size(), 5U);
  EXPECT_EQ(running->reason, FinishReason::kCancelled);
  EXPECT_TRUE(waiting->tokens.empty());
  EXPECT_FALSE(engine->cancel(RequestId(1)));
  EXPECT_TRUE(engine->idle());
  ASSERT_TRUE(engine->submit(simple_request(1, {1, 2, 3}, 20)));  // the id is free again
  EXPECT_EQ(run_to_end(engine)[1].tokens.size(), 20U);
}

TEST(EngineTest, AfterDropKvResponsesGoOnUnderTheNewWeights) {
  const auto model = tiny_model(1), next = tiny_model(2);
  const std::vector<Token> prompt = testing::random_tokens(97, 40, 9);
  TestEngine engine(*model, {});
  ASSERT_TRUE(engine->submit(greedy_request(1, prompt, 60)));
  std::vector<Response> finished;
  for (int step = 0; step < 30; ++step) ASSERT_TRUE(engine->step(finished));
  copy_weights(*next, *model);
  engine->drop_kv();
  const Response response = run_to_end(engine)[1];

  const Response before = run_all(*tiny_model(1), {}, {greedy_request(1, prompt, 30)})[1];
  std::vector<Token> known = prompt;
  known.insert(known.end(), before.tokens.begin(), before.tokens.end());
  const Response after = run_all(*next, {}, {greedy_request(1, known, 30)})[1];
  Response joined = before;
  joined.tokens.insert(joined.tokens.end(), after.tokens.begin(), after.tokens.end());
  joined.logprobs.insert(joined.logprobs.end(), after.logprobs.begin(), after.logprobs.end());
  joined.entropies.insert(joined.entropies.end(), after.entropies.begin(), after.entropies.end());
  EXPECT_EQ(difference(joined, response), "");
}

TEST(EngineTest, LogitsThatAreNotFiniteFailTheStep) {
  const auto model = tiny_model();
  const model::ParamIndex norm = model->layout().final_norm();
  const std::vector<float> huge(32, 3e38F);
  ASSERT_TRUE(model->weights().store(norm, 0, 1, huge.data()));
  TestEngine engine(*model, {});
  ASSERT_TRUE(engine->submit(simple_request(1, {1, 2, 3}, 20)));
  std::vector<Response> finished;
  const auto stepped = engine->step(finished);
  ASSERT_FALSE(stepped);
  EXPECT_EQ(stepped.error().code(), Code::kNumeric);
}

TEST(EngineTest, IdleStepDoesNothing) {
  const auto model = tiny_model();
  TestEngine engine(*model, {});
  std::vector<Response> finished;
  ASSERT_TRUE(engine->step(finished));
  EXPECT_TRUE(finished.empty());
  EXPECT_EQ(engine->stats().steps, 0);
}

}  // namespace
}  // namespace rondo::engine
