// Which files of a folder hold its tensors, and the errors if they do not agree.
#include "client/checkpoint/tensor_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

using testing::HasSubstr;

class Tensors_OfAFolder : public testing::Test {
 protected:
  void WriteFile(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<TensorEntry> entries;
    for (const std::string& tensor : tensors) {
      entries.push_back({.name = tensor, .type = ElementType::kFloat32, .shape = {2}});
    }
    const absl::StatusOr<Header> header = LayOut(entries, {});
    ASSERT_TRUE(header.ok());
    ASSERT_TRUE(TensorFile::Create(folder_ / name, *header).ok());
  }
  void WriteIndex(const std::string& entries) {
    folder_.Write("model.safetensors.index.json",
                  absl::StrCat(R"({"weight_map": {)", entries, "}}"));
  }
  absl::Status Error() const { return TensorSet::Open(folder_.path(), "model").status(); }
  std::string Words() const { return std::string(Error().message()); }

  const base::TemporaryFolder folder_;
};

TEST_F(Tensors_OfAFolder, InShards_AreFoundByTheIndex) {
  WriteFile("a.safetensors", {"x", "y"});
  WriteFile("b.safetensors", {"z"});
  WriteIndex(R"("x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors")");
  const absl::StatusOr<TensorSet> set = TensorSet::Open(folder_.path(), "model");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->Find("z")->file->path(), folder_ / "b.safetensors");
  EXPECT_EQ(set->file_of().size(), 3u);
}

TEST_F(Tensors_OfAFolder, WholeFileBesideAnIndexOfOthers_IsRefused) {
  WriteFile("a.safetensors", {"x"});
  WriteFile("model.safetensors", {"x"});
  WriteIndex(R"("x": "a.safetensors")");
  EXPECT_EQ(Error().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Words(), HasSubstr("both model.safetensors and model.safetensors.index.json"));
  // An index of only this file agrees with it.
  WriteIndex(R"("x": "model.safetensors")");
  EXPECT_TRUE(Error().ok()) << Error();
}

TEST_F(Tensors_OfAFolder, WhoseShardIsMissing_NamesIt) {
  WriteFile("a.safetensors", {"x"});
  WriteIndex(R"("x": "a.safetensors", "y": "b.safetensors")");
  EXPECT_EQ(Error().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Words(), HasSubstr("names the file 'b.safetensors', which does not exist"));
}

TEST_F(Tensors_OfAFolder, WhoseIndexIsStale_NameTensorAndFile) {
  WriteFile("a.safetensors", {"x"});
  WriteIndex(R"("x": "a.safetensors", "y": "a.safetensors")");
  const absl::StatusOr<TensorSet> set = TensorSet::Open(folder_.path(), "model");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(std::string(set->Find("y").status().message()),
              HasSubstr("the index says that tensor 'y' is in 'a.safetensors'"));
}

TEST_F(Tensors_OfAFolder, WithAPointerInPlaceOfWeights_SayHowToFetchThem) {
  folder_.Write("model.safetensors",
                "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
  EXPECT_EQ(Error().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Words(), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(Words(), HasSubstr("git lfs pull"));
}

}  // namespace
}  // namespace geminid::checkpoint
