// Driven by engine_oracle_test.py. A line of INPUT is one sequence of token ids.
//   engine_probe logits FOLDER DTYPE INPUT OUT
//       writes the logits behind every token, fp32 [tokens, vocab] for each line, into OUT
//   engine_probe generate FOLDER DTYPE INPUT MAX_NEW_TOKENS TEMPERATURE
//       continues all lines in one engine; prints "token log-probability entropy" triples, a line for each
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/engine.h"
#include "model/load.h"

namespace rondo::engine {
namespace {

constexpr std::int64_t kMaxPositions = 1024;

using Sequences = std::vector<std::vector<Token>>;

Result<Sequences> read_sequences(const std::string& path) {
  RONDO_ASSIGN(const std::string text, read_file(path));
  Sequences sequences;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<Token> tokens;
    for (Token token = 0; words >> token;) tokens.push_back(token);
    sequences.push_back(std::move(tokens));
  }
  return sequences;
}

Result<std::unique_ptr<model::Model>> load(const std::string& folder, const std::string& dtype) {
  RONDO_ASSIGN(const hf::DType stored, hf::parse_dtype(dtype));
  RONDO_ASSIGN(const hf::ModelConfig config, hf::ModelConfig::read(folder));
  RONDO_ASSIGN(const auto reader, hf::ModelWeightsReader::open(folder));
  RONDO_ASSIGN(const model::ModelSpec spec,
               model::make_spec(config, model::storage_dtype(stored), kMaxPositions));
  return model::load_model(*reader, spec);
}

// One pass over the whole sequence, in blocks that descend, so that slots are no positions.
Result<void> write_logits(const model::Model& model, const kernels::Context& context,
                          const std::vector<Token>& tokens, FileWriter& out) {
  const auto rows = static_cast<std::int32_t>(tokens.size());
  const auto num_blocks = static_cast<std::int32_t>(kv::blocks_for(rows));
  RONDO_ASSIGN(KvStorage kv, KvStorage::create(model.spec(), num_blocks));
  Forward forward(model, kv, context, rows);
  std::vector<std::int32_t> table(static_cast<std::size_t>(num_blocks)), positions(tokens.size());
  std::iota(table.rbegin(), table.rend(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  const kernels::SequenceSpan span{
      .block_table = table.data(), .first_position = 0, .first_row = 0, .rows = rows};
  forward.run({.tokens = tokens, .positions = positions, .spans = {&span, 1}});
  for (std::size_t first = 0; first < tokens.size(); first += Forward::kLogitRows) {
    const std::size_t count = std::min<std::size_t>(Forward::kLogitRows, tokens.size() - first);
    const float* logits = forward.logits(std::span(positions).subspan(first, count));
    const std::span values(logits, count * static_cast<std::size_t>(model.spec().vocab));
    RONDO_TRY(out.append(std::as_bytes(values)));
  }
  return {};
}

Result<void> logits(const std::vector<std::string>& args, const kernels::Context& context) {
  RONDO_ASSIGN(const auto model, load(args[1], args[2]));
  RONDO_ASSIGN(const Sequences sequences, read_sequences(args[3]));
  RONDO_ASSIGN(FileWriter out, FileWriter::create(args[4]));
  for (const auto& tokens : sequences) RONDO_TRY(write_logits(*model, context, tokens, out));
  return out.finish();
}

Request request_for(std::size_t index, const std::vector<Token>& prompt,
                    const std::vector<std::string>& args) {
  Request request;
  request.id = RequestId(static_cast<std::int64_t>(index));
  request.group = GroupId(request.id.value());
  request.prompt = std::make_shared<const std::vector<Token>>(prompt);
  request.max_new_tokens = static_cast<std::int32_t>(std::strtol(args[4].c_str(), nullptr, 10));
  request.sampling.temperature = std::strtof(args[5].c_str(), nullptr);
  request.counter.ordinal = static_cast<std::uint32_t>(index);
  return request;
}

void print_response(const Response& response) {
  for (std::size_t i = 0; i < response.tokens.size(); ++i)
    fmt::print("{} {} {} ", response.tokens[i], response.logprobs[i], response.entropies[i]);
  fmt::print("\n");
}

Result<void> generate(const std::vector<std::string>& args, const kernels::Context& context) {
  RONDO_ASSIGN(const auto model, load(args[1], args[2]));
  RONDO_ASSIGN(const Sequences sequences, read_sequences(args[3]));
  RONDO_ASSIGN(const auto engine, Engine::create({}, *model, nullptr, context));
  for (std::size_t i = 0; i < sequences.size(); ++i)
    RONDO_TRY(engine->submit(request_for(i, sequences[i], args)));
  std::vector<Response> finished;
  while (!engine->idle()) RONDO_TRY(engine->step(finished));
  std::ranges::sort(finished, {}, [](const Response& response) { return response.id; });
  for (const Response& response : finished) print_response(response);
  return {};
}

Result<void> run(const std::vector<std::string>& args) {
  ThreadPool pool(2);
  RONDO_ASSIGN(const kernels::OpTable* table, kernels::find_target("auto"));
  const kernels::Context context{table, &pool};
  if (args.size() == 5 && args[0] == "logits") return logits(args, context);
  if (args.size() == 6 && args[0] == "generate") return generate(args, context);
  return fail(Code::kInvalidArgument,
              "usage: engine_probe logits FOLDER DTYPE INPUT OUT | generate FOLDER DTYPE INPUT "
              "MAX_NEW_TOKENS TEMPERATURE");
}

}  // namespace
}  // namespace rondo::engine

int main(int argc, char** argv) {
  const auto result = rondo::engine::run(std::vector<std::string>(argv + 1, argv + argc));
  if (result) return 0;
  fmt::print(stderr, "engine_probe: {}\n", result.error().to_string());
  return 1;
}
