#include "training/settings/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class Outputs : public testing::Test {
 protected:
  std::string Error(const TrainOptions& options, bool exports = true) const {
    const absl::Status status = CheckOutputs(options, exports);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  const base::TemporaryFolder folder_;
};

TEST(OutputPaths, EndWithoutSlashesAndDots) {
  for (const char* given : {"out", "out/", "out//", "out/.", "out/./", "out/.//./"}) {
    EXPECT_EQ(WithoutSlashesAtEnd(given), "out") << given;
  }
  EXPECT_EQ(WithoutSlashesAtEnd("/"), "/");
  EXPECT_EQ(WithoutSlashesAtEnd("."), ".");
  EXPECT_EQ(WithoutSlashesAtEnd("./"), ".");
  EXPECT_EQ(WithoutSlashesAtEnd("a/.."), "a/..");
  EXPECT_EQ(WithoutSlashesAtEnd(""), "");
}

TEST_F(Outputs, ThatCanBeWritten_LeaveNothingBehind) {
  TrainOptions options;
  options.save = folder_ / "a/b/run";
  options.export_to = folder_ / "a/out";
  options.tensorboard = folder_ / "board";
  options.log = folder_ / "log";
  options.report = folder_ / "report";
  EXPECT_EQ(Error(options), "");
  EXPECT_EQ(folder_.Entries(), 0u);
}

TEST_F(Outputs, OfOneWord_LieInTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  TrainOptions options;
  options.save = "run";
  options.export_to = "out";
  const std::string error = Error(options);
  fs::current_path(before);
  EXPECT_EQ(error, "");
}

TEST_F(Outputs, WithAFileInTheWay_NameTheFlagAndThePath) {
  const std::string file = folder_.Write("file", "x");
  TrainOptions options;
  options.save = file + "/run";
  EXPECT_THAT(Error(options),
              StartsWith("--save " + file + "/run: '" + file + "' is not a folder"));
  options.save = "";
  options.export_to = file;
  EXPECT_THAT(Error(options), StartsWith("--export " + file + ": it exists"));
  EXPECT_EQ(Error(options, /*exports=*/false), "") << "an earlier start has exported";
  options.export_to = file + "/out";
  EXPECT_THAT(Error(options), StartsWith("--export " + file + "/out: '" + file + "' is not a"));
  options.export_to = "";
  options.log = folder_.path();
  EXPECT_THAT(Error(options), StartsWith("--log " + folder_.path() + ": it is not a file"));
}

TEST_F(Outputs, WhereNothingCanBeMade_AreRefused) {
  TrainOptions options;
  options.save = "/proc/geminid-run";
  EXPECT_THAT(std::string(CheckOutputs(options, true).message()),
              StartsWith("--save /proc/geminid-run: "));
  EXPECT_FALSE(CheckOutputs(options, true).ok());
  options.save = folder_ / "loop";
  fs::create_symlink(folder_ / "loop", folder_ / "loop");
  EXPECT_THAT(Error(options), HasSubstr("no folder can be there"));
}

TEST_F(Outputs, BehindALinkThatLeadsNowhere_NameIt) {
  fs::create_symlink("gone", folder_ / "link");
  TrainOptions options;
  for (const char* const path : {"link", "link/run"}) {
    options.save = folder_ / path;
    EXPECT_THAT(Error(options), HasSubstr("'" + folder_ / "link" + "' is a link to 'gone', which"));
  }
}

TEST_F(Outputs, ThatAreTheSamePath_AreRefusedByBothFlags) {
  fs::create_directory(folder_ / "real");
  fs::create_directory_symlink(folder_ / "real", folder_ / "link");
  TrainOptions options;
  options.log = folder_ / "real/file";
  options.report = folder_ / "link/../link/file";
  EXPECT_THAT(Error(options),
              StartsWith("--log " + folder_ / "real/file" + ": it is --report too"));
  options.report = "";
  options.text = {"elsewhere", folder_ / "link/file"};
  EXPECT_THAT(Error(options), HasSubstr("it is --text too, and would be written over"));
}

// Otherwise the run could not restart: a checkpoint's files are no text, and a log would be
// training data.
TEST_F(Outputs, InsideTheTextsFolder_AreRefusedUnlessTheyArePassedOver) {
  TrainOptions options;
  options.text = {"elsewhere", folder_.path()};
  options.save = folder_ / "run";
  EXPECT_THAT(Error(options), StartsWith("--save " + folder_ / "run" + ": it lies in --text " +
                                         folder_.path() + ", and the run would read it as data"));
  options.save = folder_ / ".run";
  EXPECT_EQ(Error(options), "");
  folder_.Write(".logs/old", "x");
  options.log = folder_ / ".logs/log";
  EXPECT_EQ(Error(options), "");
  options.report = folder_ / "report";
  EXPECT_THAT(Error(options), HasSubstr("it lies in --text"));
}

TEST_F(Outputs, NamedFromWithinTheTextsFolder_AreRefused) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  TrainOptions options;
  options.text = {"."};
  options.save = "run";
  const std::string error = Error(options);
  fs::current_path(before);
  EXPECT_THAT(error, HasSubstr("it lies in --text ."));
}

TEST_F(Outputs, InsideTheFolderOfShards_AreRefusedWithTheNameOfOne) {
  TrainOptions options;
  options.shards = {folder_.path()};
  options.save = folder_ / "run";
  options.report = folder_ / "report.json";
  EXPECT_EQ(Error(options), "");
  options.report = folder_ / "report.bin";
  EXPECT_THAT(Error(options), HasSubstr("it lies in --shards"));
}

TEST_F(Outputs, InsideTheExport_AreRefused) {
  TrainOptions options;
  options.export_to = folder_ / "out";
  options.save = folder_ / "out/run";
  EXPECT_THAT(Error(options), HasSubstr("it lies in --export"));
  options.save = folder_ / "out-of-it";
  EXPECT_EQ(Error(options), "");
  // The other order is allowed.
  options.save = folder_ / "run";
  options.export_to = folder_ / "run/out";
  EXPECT_EQ(Error(options), "");
}

TEST_F(Outputs, SaveIntoACheckpoint_IsRefused) {
  folder_.Write("step-000000010/state.json", "{}");
  TrainOptions options;
  options.save = folder_ / "step-000000010";
  EXPECT_THAT(Error(options), HasSubstr("it is a checkpoint itself"));
}

TEST(CheckWritable, OfAGoodPath_LeavesTheFolderAsItWas) {
  const base::TemporaryFolder folder;
  EXPECT_TRUE(CheckWritable(folder / "r.json").ok());
  EXPECT_EQ(folder.Entries(), 0);
}

TEST(CheckWritable, OfAPathThatCannotBe_NamesIt) {
  const base::TemporaryFolder folder;
  const absl::Status missing = CheckWritable(folder / "no/r.json");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no/r.json"));
  EXPECT_EQ(CheckWritable(folder.path()).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::trainer
