#include "hf/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hf/test_folder.h"
#include "hf/weights_index.h"

namespace rondo::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string one_tensor(const std::string& name, std::string_view data) {
  return safetensors_bytes("{\"" + name + R"(":{"dtype":"F16","shape":[)" + std::to_string(data.size() / 2) +
                               R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}",
                           data);
}

Status open_error(const TestFolder& folder) {
  const auto reader = ModelWeightsReader::open(folder.path());
  return reader ? Status(Code::kInternal, "it opened") : reader.error();
}

TEST(ModelWeightsTest, ReadsASingleFile) {
  TestFolder folder;
  folder.write("model.safetensors", one_tensor("w", "abcd"));
  const auto reader = ModelWeightsReader::open(folder.path());
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_THAT((*reader)->names(), ElementsAre("w"));
  EXPECT_EQ((*reader)->total_bytes(), 4u);
  const TensorView view = (*reader)->find("w").value();
  EXPECT_EQ(view.name, "w");
  EXPECT_THAT(view.shape, ElementsAre(2));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()), "abcd");
}

TEST(ModelWeightsTest, ReadsShards) {
  TestFolder folder;
  folder.write("one.safetensors", one_tensor("b", "ab"));
  folder.write("two.safetensors", one_tensor("a", "cdef"));
  folder.write(kIndexFileName,
               R"({"metadata":{"total_size":6},"weight_map":{"b":"one.safetensors","a":"two.safetensors"}})");
  const auto reader = ModelWeightsReader::open(folder.path());
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_THAT((*reader)->names(), ElementsAre("a", "b"));
  EXPECT_EQ((*reader)->find("b").value().bytes.size(), 2u);
  EXPECT_EQ((*reader)->find("a").value().bytes.size(), 4u);
}

TEST(ModelWeightsTest, AnUnknownNameGetsTheNearestOne) {
  TestFolder folder;
  folder.write("model.safetensors", one_tensor("model.norm.weight", "abcd"));
  const auto reader = ModelWeightsReader::open(folder.path()).value();
  EXPECT_FALSE(reader->contains("model.norm.weights"));
  const auto missing = reader->find("model.norm.weights");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("the nearest is 'model.norm.weight'"));
}

TEST(ModelWeightsTest, AFolderWithoutWeightsIsNotFound) {
  TestFolder folder;
  EXPECT_EQ(open_error(folder).code(), Code::kNotFound);
  EXPECT_THAT(open_error(folder).message(),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
}

TEST(ModelWeightsTest, ErrorsNameTheFile) {
  TestFolder folder;
  folder.write("model.safetensors", one_tensor("w", "abcd").substr(0, 40));
  EXPECT_EQ(open_error(folder).code(), Code::kDataLoss);
  EXPECT_THAT(open_error(folder).message(), HasSubstr((folder.path() / "model.safetensors").string()));
}

TEST(ModelWeightsTest, IndexAndShardsMustAgree) {
  struct Case {
    const char* index;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"{", "not valid JSON"},
      {"[]", "no 'weight_map'"},
      {R"({"weight_map":{}})", "no 'weight_map'"},
      {R"({"weight_map":{"a":3}})", "tensor 'a': 3 is not the name of a file in this folder"},
      {R"({"weight_map":{"a":"../one.safetensors"}})", "is not the name of a file in this folder"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "is not the name of a file in this folder"},
      {R"({"weight_map":{"a":".."}})", "is not the name of a file in this folder"},
      {R"({"weight_map":{"a":"one.safetensors\u0000"}})", "is not the name of a file in this folder"},
      {R"({"weight_map":{"a":"three.safetensors"}})",
       "tensor 'a' should be in three.safetensors, but that file is missing"},
      {R"({"weight_map":{"a":"one.safetensors","c":"one.safetensors"}})",
       "tensor 'c' is in one.safetensors, but it is not"},
      {R"({"weight_map":{"b":"two.safetensors"}})",
       "two.safetensors holds tensor 'c', but the index does not name it"},
      {R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"three.safetensors"}})",
       "that file is missing"},
      {R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "the key 'a' appears twice"},
  };
  TestFolder folder;
  folder.write("one.safetensors", one_tensor("a", "ab"));
  folder.write("two.safetensors",
               safetensors_bytes(R"({"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                                 R"("c":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                                 "abcd"));
  for (const Case& bad : cases) {
    folder.write(kIndexFileName, bad.index);
    EXPECT_EQ(open_error(folder).code(), Code::kDataLoss) << bad.index;
    EXPECT_THAT(open_error(folder).message(), HasSubstr(bad.message)) << bad.index;
    EXPECT_THAT(open_error(folder).message(), HasSubstr(kIndexFileName)) << bad.index;
  }
}

TEST(ModelWeightsTest, ATensorInTwoShardsIsRefused) {
  TestFolder folder;
  folder.write("one.safetensors", one_tensor("a", "ab"));
  folder.write("two.safetensors",
               safetensors_bytes(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                                 R"("b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                                 "abcd"));
  folder.write(kIndexFileName, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(
      open_error(folder).message(),
      HasSubstr("two.safetensors holds tensor 'a', but the index says that it is in one.safetensors"));
}

}  // namespace
}  // namespace rondo::hf
