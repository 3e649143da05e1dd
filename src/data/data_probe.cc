// Drives the dataset reader and the rollout writer for the oracle test.
//
// usage: data_probe rows FILE…       every field of every row as "<size>:<bytes>,"
//        data_probe dump FOLDER      a dump of step 0: log_probs[i] has the bits response_tokens[i]
#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "data/prompt_row.h"
#include "data/rollout_dump.h"

namespace {

void print_field(const std::string& bytes) {
  std::printf("%zu:", bytes.size());
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::printf(",");
}

rondo::Result<void> print_rows(const std::vector<std::string>& files) {
  RONDO_ASSIGN(const auto rows, rondo::data::read_prompts(files, {}));
  for (const auto& row : rows) {
    print_field(std::to_string(row.index));
    print_field(row.data_source);
    print_field(row.ground_truth);
    print_field(row.extra_info_json);
    print_field(row.text);
    print_field(std::to_string(row.messages.size()));
    for (const auto& message : row.messages) {
      print_field(message.role);
      print_field(message.content);
    }
  }
  return {};
}

rondo::Result<void> write_dump(const std::string& folder) {
  rondo::data::RolloutRow row;
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const std::uint32_t bits = i * 42949u;  // from 0 to the last exponent, both signs
    if (!std::isfinite(std::bit_cast<float>(bits))) continue;
    row.response_tokens.push_back(std::bit_cast<rondo::Token>(bits));
    row.log_probs.push_back(std::bit_cast<float>(bits));
  }
  RONDO_ASSIGN(auto writer, rondo::data::RolloutWriter::create(folder, 0));
  RONDO_TRY(writer.append(row));
  return writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2 || (arguments[0] != "rows" && arguments[0] != "dump")) {
    std::fprintf(stderr, "usage: data_probe rows FILE… | data_probe dump FOLDER\n");
    return 2;
  }
  const auto done = arguments[0] == "rows" ? print_rows({arguments.begin() + 1, arguments.end()})
                                           : write_dump(arguments[1]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
