#include "client/checkpoint/newest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/run_record.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

class Newest_Checkpoint : public testing::Test {
 protected:
  void Save(uint64_t step, bool healthy) {
    RunRecord record;
    record.step = step;
    record.ranks = 1;
    record.healthy = healthy;
    folder_.Write(absl::StrCat(NameOfStep(step), "/", kRecordName), ToText(record));
  }
  std::string PathOf(uint64_t step) const { return folder_ / NameOfStep(step); }
  ChosenCheckpoint Choose() const {
    const absl::StatusOr<ChosenCheckpoint> chosen = ChooseNewest(folder_.path());
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    return chosen.value_or(ChosenCheckpoint());
  }

  const base::TemporaryFolder folder_;
};

TEST_F(Newest_Checkpoint, OfHealthyOnes_IsTheLast) {
  Save(10, true);
  Save(20, true);
  EXPECT_EQ(Choose().path, PathOf(20));
  EXPECT_EQ(Choose().passed_over, "");
}

TEST_F(Newest_Checkpoint, AfterADivergence_IsTheLastBeforeIt) {
  Save(10, true);
  Save(20, true);
  Save(30, false);
  Save(40, false);
  EXPECT_EQ(Choose().path, PathOf(20));
  EXPECT_EQ(Choose().passed_over, PathOf(40));
}

TEST_F(Newest_Checkpoint, WhereNoneIsHealthy_IsTheLast) {
  Save(10, false);
  Save(20, false);
  EXPECT_EQ(Choose().path, PathOf(20));
  EXPECT_EQ(Choose().passed_over, "");
}

TEST_F(Newest_Checkpoint, WhoseRecordCannotBeRead_IsNotPassedOver) {
  Save(10, true);
  folder_.Write(absl::StrCat(NameOfStep(20), "/", kRecordName), "{");
  EXPECT_EQ(Choose().path, PathOf(20));
}

TEST_F(Newest_Checkpoint, BesideFoldersWithoutARecord_IsTheLastThatHasOne) {
  folder_.Write(absl::StrCat(NameOfStep(5), "/other"), "");
  EXPECT_EQ(Choose().path, PathOf(5)) << "loading says what is missing";
  Save(10, true);
  folder_.Write(absl::StrCat(NameOfStep(20), "/other"), "");
  EXPECT_EQ(Choose().path, PathOf(10));
  EXPECT_EQ(Choose().without_record, PathOf(20));
  Save(30, false);
  EXPECT_EQ(Choose().path, PathOf(10)) << "not the folder between them";
  EXPECT_EQ(Choose().passed_over, PathOf(30));
  EXPECT_EQ(Choose().without_record, "");
}

TEST_F(Newest_Checkpoint, WithoutARecord_SaysWhatToDoNext) {
  folder_.Write(absl::StrCat(NameOfStep(5), "/other"), "");
  for (const std::string& path : {PathOf(5), PathOf(5) + "/"}) {
    const absl::Status status = ChooseNewest(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                testing::EndsWith("it lacks state.json; move this folder away to begin anew, or "
                                  "give the folder of another checkpoint"));
  }
}

TEST_F(Newest_Checkpoint, OfAFolderWithoutSteps_SaysWhatToGive) {
  const absl::Status status = ChooseNewest(folder_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              testing::EndsWith("it has neither state.json nor folders of steps, such as "
                                "step-000000020; give the folder that the run saved to, or one of "
                                "its steps"));
}

TEST_F(Newest_Checkpoint, BeforeOneThatIsDamaged_IsTheLastWholeOne) {
  const auto finish = [&](uint64_t step) {
    Save(step, true);
    const std::string record = absl::StrCat(PathOf(step), "/", kRecordName);
    const CheckedRange piece = {
        .offset = 0, .bytes = std::filesystem::file_size(record), .file = 0};
    EXPECT_TRUE(
        WriteChecksums(absl::StrCat(PathOf(step), "/", ChecksumsName(0, 1)), {kRecordName}, {piece})
            .ok());
  };
  finish(10);
  finish(20);
  EXPECT_EQ(WholeOneBefore(PathOf(30)), "") << "which is not there";
  Save(30, true);
  EXPECT_EQ(WholeOneBefore(PathOf(30)), PathOf(20));
  std::filesystem::resize_file(absl::StrCat(PathOf(20), "/", kRecordName), 5);
  EXPECT_EQ(WholeOneBefore(PathOf(30)), PathOf(10));
  EXPECT_EQ(WholeOneBefore(PathOf(10)), "");
}

TEST_F(Newest_Checkpoint, OfAFolderWithWeightsInAnotherForm_SaysWhatToDo) {
  const auto words = [&](const char* file) {
    const base::TemporaryFolder folder;
    folder.Write(file, "");
    return std::string(FolderOfValues(folder.path()).status().message());
  };
  EXPECT_THAT(words("config.json"), testing::HasSubstr("give the folder of a checkpoint"));
  EXPECT_THAT(words("pytorch_model-00001-of-00002.bin"),
              testing::HasSubstr("convert 'pytorch_model-00001-of-00002.bin' with transformers"));
  EXPECT_THAT(words("model-00001-of-00002.safetensors"),
              testing::HasSubstr("no model.safetensors.index.json"));
}

TEST_F(Newest_Checkpoint, OfACheckpointItself_IsThatOne) {
  Save(10, false);
  EXPECT_EQ(ChooseNewest(PathOf(10))->path, PathOf(10));
}

}  // namespace
}  // namespace geminid::checkpoint
