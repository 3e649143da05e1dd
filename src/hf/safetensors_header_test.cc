#include "hf/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "hf/test_folder.h"

namespace rondo::hf {
namespace {

using testing::HasSubstr;

Result<SafetensorsHeader> parse(std::string_view bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes)));
}

Result<SafetensorsHeader> parse(std::string_view header, std::string_view data) {
  return parse(safetensors_bytes(header, data));
}

struct Bad {
  const char* header;
  const char* data;
  Code code;
  const char* message;
};

TEST(SafetensorsHeaderTest, ReadsWhatTheFormatAllows) {
  const auto header = parse(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"none":{"dtype":"F16","shape":[0,9],"data_offsets":[8,8]}}  )",
      "12345678");
  ASSERT_TRUE(header) << header.error().message();
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].spec.name, "a");
  EXPECT_EQ(header->entries[0].spec.dtype, DType::kBf16);
  EXPECT_EQ(header->entries[0].spec.shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(header->entries[1].begin, 4u);
  EXPECT_EQ(header->entries[1].end, 8u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafetensorsHeaderTest, RefusesWhatTheFormatForbids) {
  const std::vector<Bad> cases = {
      {"", "", Code::kDataLoss, "does not start with '{'"},
      {"[]", "", Code::kDataLoss, "does not start with '{'"},
      {"{", "", Code::kDataLoss, "not valid JSON"},
      {"{} x", "", Code::kDataLoss, "not valid JSON"},
      {"{\"\xff\":1}", "", Code::kDataLoss, "not valid JSON"},
      {R"({"w":[[[[[1]]]]]})", "", Code::kDataLoss, "nested deeper"},
      {R"({"__metadata__":3})", "", Code::kDataLoss, "__metadata__ is not an object"},
      {R"({"__metadata__":{"k":3}})", "", Code::kDataLoss, "the value of 'k' is not text"},
      {R"({"w":3})", "", Code::kDataLoss, "tensor 'w': its entry is not an object"},
      {R"({"w":{"shape":[1],"data_offsets":[0,2]}})", "ab", Code::kDataLoss, "tensor 'w': it has no 'dtype'"},
      {R"({"w":{"dtype":1,"shape":[1],"data_offsets":[0,2]}})", "ab", Code::kDataLoss, "dtype is 1"},
      {R"({"w":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", "12345678", Code::kUnsupported,
       "tensor 'w': unknown dtype 'I64'; supported are BF16, F16 and F32"},
      {R"({"w":{"dtype":"F16","data_offsets":[0,2]}})", "ab", Code::kDataLoss, "no 'shape'"},
      {R"({"w":{"dtype":"F16","shape":1,"data_offsets":[0,2]}})", "ab", Code::kDataLoss, "not a list"},
      {R"({"w":{"dtype":"F16","shape":[-1],"data_offsets":[0,2]}})", "ab", Code::kDataLoss, "dimension -1"},
      {R"({"w":{"dtype":"F16","shape":[1.0],"data_offsets":[0,2]}})", "ab", Code::kDataLoss, "dimension 1.0"},
      {R"({"w":{"dtype":"F16","shape":[9223372036854775808],"data_offsets":[0,2]}})", "ab", Code::kDataLoss,
       "dimension 9223372036854775808"},
      {R"({"w":{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,2]}})", "ab", Code::kDataLoss,
       "more elements than any file"},
      {R"({"w":{"dtype":"F16","shape":[1]}})", "ab", Code::kDataLoss, "no 'data_offsets'"},
      {R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0]}})", "ab", Code::kDataLoss, "not [begin, end]"},
      {R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0,-2]}})", "ab", Code::kDataLoss,
       "not [begin, end]"},
      {R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[2,0]}})", "ab", Code::kDataLoss, "run backwards"},
      {R"({"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", "ab", Code::kDataLoss,
       "tensor 'w': it ends at byte 4 of the data, but only 2 are there"},
      {R"({"w":{"dtype":"F16","shape":[2],"data_offsets":[0,2]}})", "ab", Code::kDataLoss,
       "need 4 bytes, but its data_offsets span 2"},
      {R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "abc", Code::kDataLoss,
       "the tensors end at byte 2 of the data, but 3 are there"},
      {R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})", "abcd", Code::kDataLoss, "a hole"},
      {R"({"v":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"w":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
       "abcd", Code::kDataLoss,
       "tensor 'w' begins at byte 2 of the data, but the one before it ends at 4: they overlap"},
      {R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"w":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
       "abcd", Code::kDataLoss, "the key 'w' appears twice"},
  };
  for (const Bad& bad : cases) {
    const auto header = parse(bad.header, bad.data);
    ASSERT_FALSE(header) << bad.header;
    EXPECT_EQ(header.error().code(), bad.code) << bad.header;
    EXPECT_THAT(header.error().message(), HasSubstr(bad.message)) << bad.header;
  }
}

TEST(SafetensorsHeaderTest, EveryTruncationIsDataLoss) {
  const std::string whole =
      safetensors_bytes(R"({"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", "abcd");
  ASSERT_TRUE(parse(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = parse(std::string_view(whole).substr(0, size));
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code(), Code::kDataLoss) << size;
  }
}

TEST(SafetensorsHeaderTest, HostileLengthsAreDataLoss) {
  for (const std::string& length :
       {std::string(8, '\xff'), std::string("\0\0\0\0\0\0\0\x80", 8),
        std::string("\xfa\xff\xff\xff\xff\xff\xff\xff", 8), std::string("\3\0\0\0\0\0\0\0", 8)}) {
    const auto header = parse(length + "{}");
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().code(), Code::kDataLoss);
  }
}

TEST(SafetensorsHeaderTest, WritesTheBytesOfTheFormat) {
  const std::vector<TensorSpec> tensors = {{"a\"b", DType::kBf16, {2, 3}}, {"c", DType::kFp32, {}}};
  const std::string text =
      R"({"__metadata__":{"format":"pt"},"a\"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("c":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})";
  const std::string padded = text + std::string((8 - text.size() % 8) % 8, ' ');
  EXPECT_EQ(make_safetensors_header(tensors, {{"format", "pt"}}).value(), safetensors_bytes(padded, ""));
}

TEST(SafetensorsHeaderTest, RefusesToWriteImpossibleTensors) {
  const std::vector<std::vector<TensorSpec>> cases = {
      {{"", DType::kFp32, {1}}},
      {{"__metadata__", DType::kFp32, {1}}},
      {{"w", DType::kFp32, {1}}, {"w", DType::kFp32, {1}}},
      {{"\xff", DType::kFp32, {1}}},
      {{"w", DType::kFp32, {-1}}},
      {{"w", DType::kFp32, {std::int64_t{1} << 31, std::int64_t{1} << 31}}},
  };
  for (const auto& tensors : cases) {
    const auto header = make_safetensors_header(tensors, {});
    ASSERT_FALSE(header) << tensors.front().name;
    EXPECT_EQ(header.error().code(), Code::kInvalidArgument);
  }
}

RC_GTEST_PROP(SafetensorsHeaderTest, ReadsBackWhatItWrites, ()) {
  const auto names = *rc::gen::unique<std::vector<std::string>>(
      rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127))));
  std::vector<TensorSpec> tensors;
  std::size_t data_bytes = 0;
  for (const std::string& name : names) {
    const auto dtype = *rc::gen::element(DType::kBf16, DType::kFp16, DType::kFp32);
    const auto shape = *rc::gen::resize(
        4, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 5)));
    tensors.push_back({name, dtype, shape});
    data_bytes += static_cast<std::size_t>(num_elements(tensors.back()).value()) * dtype_size(dtype);
  }
  const std::string bytes = make_safetensors_header(tensors, {{"format", "pt"}}).value();
  RC_ASSERT(bytes.size() % 8 == 0u);
  const auto header = parse(bytes + std::string(data_bytes, 'x'));
  RC_ASSERT(header.has_value());
  RC_ASSERT(header->data_begin == bytes.size());
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  RC_ASSERT(header->entries.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    RC_ASSERT(header->entries[i].spec.name == tensors[i].name);
    RC_ASSERT(header->entries[i].spec.dtype == tensors[i].dtype);
    RC_ASSERT(header->entries[i].spec.shape == tensors[i].shape);
  }
}

}  // namespace
}  // namespace rondo::hf
