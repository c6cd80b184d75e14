#include "client/checkpoint/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/checkpoint/tensor_file.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

namespace fs = std::filesystem;

class Folder_OfCheckpoints : public ::testing::Test {
 protected:
  void Save(uint64_t step, const std::string& text) {
    ASSERT_TRUE(BeginStep(folder_, step).ok());
    std::ofstream(folder_ + "/" + UnfinishedNameOfStep(step) + "/file") << text;
    ASSERT_TRUE(FinishStep(folder_, step, OldCheckpoint::kIsRemoved).ok());
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

TEST_F(Folder_OfCheckpoints, WhatIsNotTheSavers_IsKeptUnderAnotherName) {
  fs::create_directory(folder_ + "/step-000000020");
  std::ofstream(folder_ + "/step-000000020/thesis") << "of the user";
  for (const char* const text : {"first", "second"}) {
    ASSERT_TRUE(BeginStep(folder_, 20).ok());
    std::ofstream(folder_ + "/" + UnfinishedNameOfStep(20) + "/file") << text;
    ASSERT_TRUE(FinishStep(folder_, 20, OldCheckpoint::kIsKept).ok());
    EXPECT_EQ(TextOf(20), text);
  }
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000020.kept/thesis"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000020.kept.2/file"));
  ASSERT_TRUE(RemoveCheckpoints(folder_, {}).ok());
  EXPECT_EQ(Entries(), 3u);
  EXPECT_EQ(*FinishedIn(folder_), std::vector<std::string>{"step-000000020"});
}

TEST_F(Folder_OfCheckpoints, Unfinished_IsNoCheckpointUntilFinished) {
  ASSERT_TRUE(BeginStep(folder_, 20).ok());
  EXPECT_TRUE(FinishedIn(folder_)->empty());
  ASSERT_TRUE(FinishStep(folder_, 20, OldCheckpoint::kIsRemoved).ok());
  EXPECT_EQ(*FinishedIn(folder_), std::vector<std::string>{"step-000000020"});
}

// A user who may rename in the folder replaces the unfinished checkpoint by a link.
TEST_F(Folder_OfCheckpoints, ThatBecameALinkWhileItIsWritten_LeadsTheWriterNowhere) {
  const base::TemporaryFolder others;
  const std::string precious = others.Write("model.safetensors", "precious");
  ASSERT_TRUE(BeginStep(folder_, 20).ok());
  const std::string unfinished = absl::StrCat(folder_, "/", UnfinishedNameOfStep(20));
  fs::rename(unfinished, unfinished + ".aside");
  fs::create_directory_symlink(others.path(), unfinished);
  const Header header = *LayOut({{.name = "a", .shape = {8}}}, {});
  const std::string file = unfinished + "/model.safetensors";
  for (const absl::Status& status :
       {TensorFile::OpenToWrite(file, header).status(),
        TensorFile::Create(unfinished + "/new.safetensors", header).status(),
        WriteNewFile(unfinished + "/new.json", "{}"), WriteNewFile(file, "{}")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(std::string(status.message()).find("is a link"), std::string::npos) << status;
  }
  EXPECT_EQ(others.Entries(), 1u);
  std::ifstream text(precious);
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(text), {}}), "precious");
}

TEST_F(Folder_OfCheckpoints, FileThatBecameALinkWhileItIsWritten_IsNotFollowed) {
  const base::TemporaryFolder others;
  const std::string precious = others.Write("x", "precious");
  ASSERT_TRUE(BeginStep(folder_, 20).ok());
  const std::string file = absl::StrCat(folder_, "/", UnfinishedNameOfStep(20), "/x");
  fs::create_symlink(precious, file);
  const Header header = *LayOut({{.name = "a", .shape = {8}}}, {});
  EXPECT_EQ(TensorFile::OpenToWrite(file, header).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(WriteNewFile(file, "{}").ok());
}

// The link is the user's own, for example to a larger disk.
TEST_F(Folder_OfCheckpoints, BehindALinkOfTheUsers_AreWrittenThere) {
  const std::string link = folder_ + ".link";
  fs::create_directory_symlink(folder_, link);
  ASSERT_TRUE(BeginStep(link, 20).ok());
  ASSERT_TRUE(
      WriteNewFile(absl::StrCat(link, "/", UnfinishedNameOfStep(20), "/file"), "text").ok());
  ASSERT_TRUE(FinishStep(link, 20, OldCheckpoint::kIsRemoved).ok());
  EXPECT_EQ(TextOf(20), "text");
  fs::remove(link);
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

TEST_F(Folder_OfCheckpoints, Finished_AreInOrderOfTheirNumbers) {
  for (uint64_t step : {5u, 1000000000u, 999999999u}) Save(step, absl::StrCat(step));
  EXPECT_EQ(*FinishedIn(folder_),
            (std::vector<std::string>{"step-000000005", "step-999999999", "step-1000000000"}));
}

TEST_F(Folder_OfCheckpoints, Removed_GoWithWhatOtherRemovalsLeftAndNothingElse) {
  for (uint64_t step : {5u, 20u}) Save(step, absl::StrCat(step));
  for (const char* name : {"step-000000003.removed", "step-000000004.replaced", "something-else",
                           "notes.removed", "step-000000030.unfinished"}) {
    fs::create_directory(folder_ + "/" + name);
  }
  ASSERT_TRUE(RemoveCheckpoints(folder_, {"step-000000001", "step-000000005"}).ok())
      << "the user has removed the first";
  EXPECT_EQ(*FinishedIn(folder_), std::vector<std::string>{"step-000000020"});
  EXPECT_EQ(Entries(), 4u) << "what is not ours stays, and so does a save in progress";
  ASSERT_TRUE(RemoveUnfinished(folder_).ok());
  EXPECT_EQ(Entries(), 3u);
}

TEST_F(Folder_OfCheckpoints, SetAside_AreNoneAnyMoreAndStillThere) {
  Save(5, "five");
  ASSERT_TRUE(SetAside(folder_).ok());
  EXPECT_TRUE(FinishedIn(folder_)->empty());
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000005.replaced/file"));
  Save(5, "again");
  ASSERT_TRUE(SetAside(folder_).ok()) << "in place of those before";
  EXPECT_EQ(Entries(), 1u);
}

std::vector<std::string> Pruned(const std::string& health, uint64_t keep) {
  std::vector<FinishedCheckpoint> in_order;
  for (size_t i = 0; i < health.size(); ++i) {
    in_order.push_back({std::string(1, static_cast<char>('a' + i)), health[i] == '+'});
  }
  return ToPrune(in_order, keep);
}

TEST(ToPrune, LeavesTheLastOnesAndTheLastHealthyOne) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(Pruned("+++", 2), Names{"a"});
  EXPECT_EQ(Pruned("+++", 3), Names{});
  EXPECT_EQ(Pruned("+++", 4), Names{});
  EXPECT_EQ(Pruned("+++", 0), Names{}) << "all stay";
  EXPECT_EQ(Pruned("++--", 2), Names{"a"});
  EXPECT_EQ(Pruned("++--+", 1), (Names{"a", "b", "c", "d"}));
  EXPECT_EQ(Pruned("+---", 1), (Names{"b", "c"}));
  EXPECT_EQ(Pruned("---", 1), (Names{"a", "b"}));
}

TEST_F(Folder_OfCheckpoints, MissingFolder_IsAnErrorWithItsName) {
  const absl::Status status = FinishedIn(folder_ + "/none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("/none"), std::string::npos);
}

}  // namespace
}  // namespace geminid::checkpoint
