// What an engine step costs beside the model: own tokens, drafts, and syncs with the server in its process.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "batch/draft_client.h"
#include "rollout/draft_server.h"
#include "rollout/local_draft_transport.h"

namespace rondo::rollout {
namespace {

using Tokens = std::vector<Token>;

constexpr std::size_t kGroupSize = 8;

// Siblings that put together phrases from their group's stock, with a token of their own in between.
Tokens make_response(std::size_t group, std::size_t sample, std::size_t length) {
  std::mt19937 stock(static_cast<std::uint32_t>(group));
  std::mt19937 random(static_cast<std::uint32_t>(group * 1000 + sample));
  std::vector<Tokens> phrases(200, Tokens(20));
  for (Tokens& phrase : phrases)
    for (Token& token : phrase) token = static_cast<Token>(stock() % 32'000);
  Tokens tokens;
  while (tokens.size() < length) {
    const Tokens& phrase = phrases[random() % phrases.size()];
    tokens.insert(tokens.end(), phrase.begin(), phrase.end());
    tokens.push_back(static_cast<Token>(random() % 32'000));
  }
  tokens.resize(length);
  return tokens;
}

// Two instances generate the halves of each group; the time is that of the first.
void engine_step(benchmark::State& state) {
  const auto num_sequences = static_cast<std::size_t>(state.range(0));
  const auto num_steps = static_cast<std::size_t>(state.range(1));
  std::vector<Tokens> responses;
  for (std::size_t i = 0; i < 2 * num_sequences; ++i)
    responses.push_back(make_response(i / kGroupSize, i % kGroupSize, num_steps));
  double hits = 0;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const SteadyClock clock;
    const auto server = *DraftServer::create({}, clock);
    LocalDraftTransport transports[2] = {LocalDraftTransport(*server), LocalDraftTransport(*server)};
    const std::unique_ptr<batch::DraftClient> clients[2] = {*batch::DraftClient::create({}, transports[0]),
                                                            *batch::DraftClient::create({}, transports[1])};
    for (const auto& client : clients)
      for (std::size_t i = 0; i < responses.size(); i += kGroupSize)
        client->register_group(GroupId(static_cast<std::int64_t>(i / kGroupSize)),
                               make_response(i / kGroupSize, kGroupSize, 200));
    std::vector<batch::DraftQuery> queries;
    batch::Drafts drafts;
    for (std::size_t length = 1; length <= num_steps; ++length) {
      for (std::size_t c = 0; c < 2; ++c) {
        if (c == 0) state.ResumeTiming();
        queries.clear();
        for (std::size_t i = c; i < responses.size(); i += 2) {
          const GroupId group(static_cast<std::int64_t>(i / kGroupSize));
          const RequestId request(static_cast<std::int64_t>(i));
          const auto response = std::span<const Token>(responses[i]).first(length);
          clients[c]->own_tokens(group, request, response);
          queries.push_back(
              {batch::Slot(static_cast<std::int32_t>(i)), group, request, response, {.max_tokens = 8}});
        }
        drafts.clear();
        clients[c]->batch_speculate(queries, drafts);
        clients[c]->end_step();
        if (c == 0) state.PauseTiming();
      }
    }
    hits = clients[0]->stats().draft_hit();
    bytes = clients[0]->stats().sent_bytes + clients[0]->stats().received_bytes;
    state.ResumeTiming();
  }
  const auto per_token = static_cast<double>(num_sequences * num_steps);
  state.counters["time/token"] = benchmark::Counter(
      per_token, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["draft_hit"] = hits;
  state.counters["wire_bytes/token"] = static_cast<double>(bytes) / per_token;
}
BENCHMARK(engine_step)->Args({64, 1000})->Args({16, 4000})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rondo::rollout
