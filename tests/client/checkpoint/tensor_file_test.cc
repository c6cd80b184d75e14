#include "client/checkpoint/tensor_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

class TensorFile_OnDisk : public ::testing::Test {
 protected:
  std::string Path(const char* name) const { return absl::StrCat(folder_, "/", name); }

  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

// The file was written by the format's own library (safetensors 0.7, numpy).
TEST_F(TensorFile_OnDisk, FileOfTheFormatsOwnLibrary_IsRead) {
  const absl::StatusOr<TensorFile> file =
      TensorFile::OpenToRead(GEMINID_CHECKPOINT_DATA "/reference.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorEntry* weight = file->header().Find("layer.weight");
  const TensorEntry* half = file->header().Find("layer.half");
  const TensorEntry* empty = file->header().Find("empty");
  ASSERT_TRUE(weight != nullptr && half != nullptr && empty != nullptr);
  EXPECT_EQ(weight->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(empty->bytes, 0u);
  std::vector<float> values(6);
  ASSERT_TRUE(file->ReadFloats(*weight, 0, values).ok());
  EXPECT_EQ(values, (std::vector<float>{1.5F, -2.0F, 0.25F, 3e38F,
                                        std::numeric_limits<float>::infinity(), -0.0F}));
  EXPECT_TRUE(std::signbit(values[5]));
  values.resize(2);
  ASSERT_TRUE(file->ReadFloats(*half, 1, values).ok());
  EXPECT_EQ(values, (std::vector<float>{-0.5F, 65504.0F}));
}

TEST_F(TensorFile_OnDisk, RangesWrittenByTwoHandles_AreReadBack) {
  const Header header = *LayOut({{.name = "a", .shape = {8}}, {.name = "b", .shape = {4}}}, {});
  const absl::StatusOr<TensorFile> first = TensorFile::Create(Path("x"), header);
  const absl::StatusOr<TensorFile> second = TensorFile::OpenToWrite(Path("x"), header);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<float> values = {1, 2, 3, 4};
  const auto bytes = std::as_bytes(std::span(values));
  ASSERT_TRUE(first->Write(first->PlaceOf(header.tensors[0], 4), bytes).ok());
  ASSERT_TRUE(second->Write(second->PlaceOf(header.tensors[1], 0), bytes).ok());
  ASSERT_TRUE(first->Sync().ok());
  const absl::StatusOr<TensorFile> read = TensorFile::OpenToRead(Path("x"));
  ASSERT_TRUE(read.ok()) << read.status();
  std::vector<float> all(8);
  ASSERT_TRUE(read->ReadFloats(read->header().tensors[0], 0, all).ok());
  EXPECT_EQ(all, (std::vector<float>{0, 0, 0, 0, 1, 2, 3, 4}));
}

TEST_F(TensorFile_OnDisk, ExistingFile_IsNotOverwritten) {
  const Header header = *LayOut({{.name = "a", .shape = {8}}}, {});
  ASSERT_TRUE(TensorFile::Create(Path("x"), header).ok());
  EXPECT_FALSE(TensorFile::Create(Path("x"), header).ok());
}

TEST_F(TensorFile_OnDisk, WhatIsNoTensorFile_IsRefusedByName) {
  std::filesystem::create_directory(Path("folder"));
  std::ofstream(Path("empty")).flush();
  std::ofstream(Path("text")) << "this is a text and no tensors";
  for (const char* name : {"folder", "empty", "text", "missing"}) {
    const absl::StatusOr<TensorFile> file = TensorFile::OpenToRead(Path(name));
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_NE(std::string(file.status().message()).find(name), std::string::npos) << file.status();
  }
}

TEST_F(TensorFile_OnDisk, LimitOfTheProcessesFiles_IsAnErrorWithTheSizeAndNoSignal) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Header header = *LayOut({{.name = "a", .shape = {1 << 20}}}, {});
  const absl::Status status = TensorFile::Create(Path("x"), header).status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("4.0 MiB"), std::string::npos) << status;
}

}  // namespace
}  // namespace geminid::checkpoint
