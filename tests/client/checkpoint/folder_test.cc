#include "client/checkpoint/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

namespace fs = std::filesystem;

class Folder_OfCheckpoints : public ::testing::Test {
 protected:
  void Save(uint64_t step, const std::string& text) {
    ASSERT_TRUE(BeginStep(folder_, step).ok());
    std::ofstream(folder_ + "/" + UnfinishedNameOfStep(step) + "/file") << text;
    ASSERT_TRUE(FinishStep(folder_, step).ok());
  }
  std::string TextOf(uint64_t step) {
    std::ifstream file(folder_ + "/" + NameOfStep(step) + "/file");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(Folder_OfCheckpoints, Unfinished_IsNoCheckpointUntilFinished) {
  ASSERT_TRUE(BeginStep(folder_, 20).ok());
  EXPECT_TRUE(FinishedIn(folder_)->empty());
  ASSERT_TRUE(FinishStep(folder_, 20).ok());
  EXPECT_EQ(*FinishedIn(folder_), std::vector<std::string>{"step-000000020"});
}

TEST_F(Folder_OfCheckpoints, WhatAnInterruptedSaveLeft_IsReplaced) {
  ASSERT_TRUE(BeginStep(folder_, 20).ok());
  std::ofstream(folder_ + "/" + UnfinishedNameOfStep(20) + "/left") << "x";
  Save(20, "new");
  EXPECT_EQ(TextOf(20), "new");
  EXPECT_FALSE(fs::exists(folder_ + "/" + NameOfStep(20) + "/left"));
}

TEST_F(Folder_OfCheckpoints, SameStepAgain_TakesThePlaceOfTheOld) {
  Save(20, "old");
  Save(20, "new");
  EXPECT_EQ(TextOf(20), "new");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(Folder_OfCheckpoints, Abandoned_LeavesNothing) {
  Save(10, "kept");
  ASSERT_TRUE(BeginStep(folder_, 20).ok());
  AbandonStep(folder_, 20);
  EXPECT_EQ(Entries(), 1u);
  EXPECT_EQ(TextOf(10), "kept");
}

TEST_F(Folder_OfCheckpoints, Prune_KeepsTheNewestByNumber) {
  for (uint64_t step : {5u, 1000000000u, 999999999u, 20u}) Save(step, absl::StrCat(step));
  fs::create_directory(folder_ + "/step-000000003.removed");
  fs::create_directory(folder_ + "/something-else");
  ASSERT_TRUE(Prune(folder_, 2).ok());
  EXPECT_EQ(*FinishedIn(folder_), (std::vector<std::string>{"step-999999999", "step-1000000000"}));
  EXPECT_EQ(Entries(), 3u) << "what is not ours stays";
  ASSERT_TRUE(Prune(folder_, 0).ok());
  EXPECT_EQ(FinishedIn(folder_)->size(), 2u);
}

TEST_F(Folder_OfCheckpoints, MissingFolder_IsAnErrorWithItsName) {
  const absl::Status status = FinishedIn(folder_ + "/none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("/none"), std::string::npos);
}

}  // namespace
}  // namespace geminid::checkpoint
