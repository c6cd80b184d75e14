#include "client/checkpoint/contents.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace geminid::checkpoint {
namespace {

using zero::Parameter;
using zero::ParameterId;
using zero::StateKind;

std::vector<Parameter> Parameters() {
  return {{.name = "wte", .shape = {10, 4}},
          {.name = "frozen", .shape = {8}, .trainable = false},
          {.name = "norm", .shape = {4}}};
}

bool TrainedHasMoments(ParameterId id, StateKind kind) {
  return kind == StateKind::kMaster || static_cast<uint32_t>(id) != 1;
}

TEST(Contents_Plan, SmallModel_HasOneFileOfValuesAndOneOfMoments) {
  const absl::StatusOr<Contents> contents =
      PlanContents(Parameters(), TrainedHasMoments, zero::DataType::kFloat32, 24, 1 << 20);
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_EQ(contents->files.size(), 2u);
  EXPECT_EQ(contents->files[0].name, "model.safetensors");
  EXPECT_EQ(contents->files[0].header.data_bytes, 52u * 4);
  EXPECT_EQ(contents->files[1].name, "optimizer.safetensors");
  EXPECT_EQ(contents->files[1].header.data_bytes, 2 * 44u * 4 + 24);
  EXPECT_EQ(contents->places.size(), 3u + 4u + 1u);
  EXPECT_TRUE(contents->places.contains("exp_avg_sq.norm"));
  EXPECT_FALSE(contents->places.contains("exp_avg.frozen"));
  EXPECT_EQ(IndexText(*contents, kModelPrefix), "");
}

TEST(Contents_Plan, StateInBFloat16_TakesHalfTheBytesAndValuesStay) {
  const absl::StatusOr<Contents> contents =
      PlanContents(Parameters(), TrainedHasMoments, zero::DataType::kBFloat16, 24, 1 << 20);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->files[0].header.data_bytes, 52u * 4);
  EXPECT_EQ(contents->files[1].header.data_bytes, 2 * 44u * 2 + 24);
}

TEST(Contents_Plan, LimitOfAFile_CutsBetweenTensorsAndWritesAnIndex) {
  // The values have 160, 32 and 16 bytes.
  const absl::StatusOr<Contents> contents =
      PlanContents(Parameters(), TrainedHasMoments, zero::DataType::kFloat32, 0, 48);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(contents->files[1].name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(contents->files[1].header.tensors.size(), 2u);
  const auto index = ReadIndex(IndexText(*contents, kModelPrefix));
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->size(), 3u);
  EXPECT_EQ(index->at("norm"), "model-00002-of-00002.safetensors");
}

TEST(Contents_Plan, NameThatAFileCannotHold_IsRefused) {
  for (const char* name : {"", "a\n", "\xff", "__metadata__"}) {
    EXPECT_EQ(PlanContents({{.name = name, .shape = {1}}}, TrainedHasMoments,
                           zero::DataType::kFloat32, 0, 100)
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Contents_Index, FileOutsideTheFolder_IsRefused) {
  for (const char* file : {"../x", "/etc/passwd", "", ".hidden"}) {
    EXPECT_FALSE(ReadIndex(std::string(R"({"weight_map": {"a": ")") + file + "\"}}").ok()) << file;
  }
  EXPECT_FALSE(ReadIndex("{}").ok());
  EXPECT_FALSE(ReadIndex(R"({"weight_map": {"a": 1}})").ok());
  EXPECT_FALSE(ReadIndex("nothing").ok());
}

}  // namespace
}  // namespace geminid::checkpoint
