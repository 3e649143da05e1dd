#include "hf/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>

#include "hf/strict_json.h"

namespace rondo::hf {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMaxDepth = 4;
constexpr std::size_t kLengthBytes = 8;

std::uint64_t load_little_endian64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// The header's text, once its length is known to lie inside the file.
Result<std::string_view> header_text(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes)
    return fail(Code::kDataLoss, "only {} bytes long; a safetensors file starts with an 8-byte length",
                file.size());
  const std::uint64_t length = load_little_endian64(file);
  if (length > kMaxSafetensorsHeader)
    return fail(Code::kDataLoss, "claims a header of {} bytes; the limit is {}. Is it a safetensors file?",
                length, kMaxSafetensorsHeader);
  if (length > file.size() - kLengthBytes)
    return fail(
        Code::kDataLoss,
        "cut short inside the header: it claims {} bytes and {} follow. Copy or download the file again",
        length, file.size() - kLengthBytes);
  const char* first = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  const std::string_view text(first, static_cast<std::size_t>(length));
  if (!text.starts_with('{')) return fail(Code::kDataLoss, "the header does not start with '{{'");
  return text;
}

Result<const json*> member(const json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) return fail(Code::kDataLoss, "it has no '{}'", key);
  return &*found;
}

Result<std::vector<std::int64_t>> parse_shape(const json& tensor) {
  RONDO_ASSIGN(const json* shape, member(tensor, "shape"));
  if (!shape->is_array()) return fail(Code::kDataLoss, "its shape is {}, not a list", brief(*shape));
  std::vector<std::int64_t> dimensions;
  for (const json& dimension : *shape) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() > kMax)
      return fail(Code::kDataLoss, "its shape has the dimension {}", brief(dimension));
    dimensions.push_back(dimension.get<std::int64_t>());
  }
  return dimensions;
}

Result<void> parse_offsets(const json& tensor, std::uint64_t data_size, SafetensorsHeader::Entry& entry) {
  RONDO_ASSIGN(const json* offsets, member(tensor, "data_offsets"));
  if (!offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned())
    return fail(Code::kDataLoss, "its data_offsets are {}, not [begin, end]", brief(*offsets));
  entry.begin = (*offsets)[0].get<std::uint64_t>();
  entry.end = (*offsets)[1].get<std::uint64_t>();
  if (entry.begin > entry.end)
    return fail(Code::kDataLoss, "its data_offsets [{}, {}] run backwards", entry.begin, entry.end);
  if (entry.end > data_size)
    return fail(Code::kDataLoss,
                "it ends at byte {} of the data, but only {} are there. Copy or download the file again",
                entry.end, data_size);
  return {};
}

Result<SafetensorsHeader::Entry> parse_entry(const std::string& name, const json& tensor,
                                             std::uint64_t data_size) {
  if (!tensor.is_object()) return fail(Code::kDataLoss, "its entry is not an object");
  SafetensorsHeader::Entry entry;
  entry.spec.name = name;
  RONDO_ASSIGN(const json* dtype, member(tensor, "dtype"));
  if (!dtype->is_string()) return fail(Code::kDataLoss, "its dtype is {}, not a name", brief(*dtype));
  RONDO_ASSIGN(entry.spec.dtype, parse_safetensors_dtype(dtype->get_ref<const std::string&>()));
  RONDO_ASSIGN(entry.spec.shape, parse_shape(tensor));
  RONDO_TRY(parse_offsets(tensor, data_size, entry));
  const Result<std::int64_t> count = num_elements(entry.spec);
  if (!count) return fail(Code::kDataLoss, "its shape has more elements than any file can hold");
  const std::uint64_t bytes = static_cast<std::uint64_t>(*count) * dtype_size(entry.spec.dtype);
  if (bytes != entry.end - entry.begin)
    return fail(Code::kDataLoss, "dtype and shape need {} bytes, but its data_offsets span {}", bytes,
                entry.end - entry.begin);
  return entry;
}

Result<void> parse_metadata(const json& object, std::map<std::string, std::string>& metadata) {
  if (!object.is_object()) return fail(Code::kDataLoss, "{} is not an object", kMetadata);
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) return fail(Code::kDataLoss, "{}: the value of '{}' is not text", kMetadata, key);
    metadata.emplace(key, value.get<std::string>());
  }
  return {};
}

// No hole, no overlap, and the last tensor ends with the file.
Result<void> check_layout(const std::vector<SafetensorsHeader::Entry>& entries, std::uint64_t data_size) {
  std::vector<const SafetensorsHeader::Entry*> order;
  order.reserve(entries.size());
  for (const auto& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  std::uint64_t expected = 0;
  for (const auto* entry : order) {
    if (entry->begin != expected)
      return fail(Code::kDataLoss,
                  "tensor '{}' begins at byte {} of the data, but the one before it ends at {}: {}",
                  entry->spec.name, entry->begin, expected,
                  entry->begin < expected ? "they overlap" : "a hole lies between them");
    expected = entry->end;
  }
  if (expected != data_size)
    return fail(Code::kDataLoss, "the tensors end at byte {} of the data, but {} are there", expected,
                data_size);
  return {};
}

Result<void> check_names(std::span<const TensorSpec> tensors) {
  std::set<std::string_view> seen;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == kMetadata)
      return fail(Code::kInvalidArgument, "'{}' cannot name a tensor in a safetensors file", tensor.name);
    if (!seen.insert(tensor.name).second)
      return fail(Code::kInvalidArgument, "two tensors have the name '{}'", tensor.name);
    if (!is_utf8(tensor.name))
      return fail(Code::kInvalidArgument, "the name of tensor {} is not UTF-8", seen.size() - 1);
  }
  return {};
}

std::string little_endian64(std::uint64_t value) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

}  // namespace

Result<std::int64_t> num_elements(const TensorSpec& spec) {
  const std::int64_t limit =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(dtype_size(spec.dtype));
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t dimension : spec.shape) {
    if (dimension < 0)
      return fail(Code::kInvalidArgument, "tensor '{}' has the dimension {}", spec.name, dimension);
    empty = empty || dimension == 0;
    if (dimension > 0 && count > limit / dimension)
      return fail(Code::kInvalidArgument, "tensor '{}' has too many elements", spec.name);
    if (dimension > 0) count *= dimension;
  }
  return empty ? 0 : count;
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file) {
  RONDO_ASSIGN(const std::string_view text, header_text(file));
  RONDO_ASSIGN_CTX(const json root, parse_strict_json<json>(text, kMaxDepth), "its header");
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + text.size();
  const std::uint64_t data_size = file.size() - header.data_begin;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      RONDO_TRY(parse_metadata(value, header.metadata));
      continue;
    }
    RONDO_ASSIGN_CTX(auto entry, parse_entry(name, value, data_size), fmt::format("tensor '{}'", name));
    header.entries.push_back(std::move(entry));
  }
  RONDO_TRY(check_layout(header.entries, data_size));
  return header;
}

Result<std::string> make_safetensors_header(std::span<const TensorSpec> tensors,
                                            const std::map<std::string, std::string>& metadata) {
  RONDO_TRY(check_names(tensors));
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", kMetadata, json(metadata).dump());
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    RONDO_ASSIGN(const std::int64_t count, num_elements(tensor));
    const std::uint64_t end = offset + static_cast<std::uint64_t>(count) * dtype_size(tensor.dtype);
    if (end < offset) return fail(Code::kInvalidArgument, "tensor '{}' does not fit one file", tensor.name);
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        text.size() > 1 ? "," : "", json(tensor.name).dump(),
                        dtype_safetensors_name(tensor.dtype), json(tensor.shape).dump(), offset, end);
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader)
    return fail(Code::kInvalidArgument,
                "{} tensors need a header beyond the limit of {} bytes; use more shards", tensors.size(),
                kMaxSafetensorsHeader);
  return little_endian64(text.size()) + text;
}

}  // namespace rondo::hf
