#include "metrics/jsonl_file.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "base/file.h"
#include "metrics/json_row.h"

namespace rondo::metrics {
namespace {

// The lines as one text: a view where they are one piece of the file, as they are unless steps went back.
std::string_view joined(const std::vector<std::string_view>& lines, std::string& storage) {
  if (lines.empty()) return {};
  std::size_t total = 0;
  for (const std::string_view line : lines) total += line.size();
  const char* begin = lines.front().data();
  if (lines.back().data() + lines.back().size() == begin + total) return {begin, total};
  for (const std::string_view line : lines) storage += line;
  return storage;
}

}  // namespace

Result<std::vector<std::string_view>> rows_up_to_step(std::string_view text, std::int64_t step) {
  std::vector<std::string_view> kept;
  std::int64_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(begin, end + 1 - begin);
    RONDO_ASSIGN_CTX(const std::int64_t row_step, step_of_row(line), fmt::format("line {}", number));
    if (row_step <= step) kept.push_back(line);
    begin = end + 1;
  }
  return kept;
}

Result<void> cut_to_step(const std::filesystem::path& path, std::int64_t step) {
  const auto file = MappedFile::open(path);
  if (!file && file.error().code() == Code::kNotFound) return {};
  if (!file) return tl::unexpected<Status>(file.error());
  const std::span<const std::byte> bytes = (*file)->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  RONDO_ASSIGN_CTX(const std::vector<std::string_view> lines, rows_up_to_step(text, step), path.string());
  std::string storage;
  const std::string_view kept = joined(lines, storage);
  if (kept.size() == text.size()) return {};
  return replace_file(path, kept);
}

}  // namespace rondo::metrics
