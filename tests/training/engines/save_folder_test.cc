#include "training/engines/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/checkpoint/folder.h"
#include "tests/base/temporary_folder.h"

namespace {

// The error of flock on a file system without locks; 0: locks work.
int lock_error = 0;

}  // namespace

// Replaces the C library's function.
extern "C" int flock(int fd, int operation) noexcept {
  if (lock_error == 0) return static_cast<int>(::syscall(SYS_flock, fd, operation));
  errno = lock_error;
  return -1;
}

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SaveFolder : public testing::Test {
 protected:
  void SetUp() override { options_.save = folder_ / "run"; }
  void TearDown() override { lock_error = 0; }

  absl::StatusOr<std::optional<FolderLock>> Take(FolderClaim claim = FolderClaim::kTake) {
    return TakeSaveFolder(options_, claim, [this](const std::string& line) { said_ += line; });
  }
  void AddCheckpoint(const std::string& name) { folder_.Write("run/" + name + "/file", name); }
  std::vector<std::string> Finished() const { return *checkpoint::FinishedIn(options_.save); }

  const base::TemporaryFolder folder_;
  TrainOptions options_;
  std::string said_;
};

TEST_F(SaveFolder, TakenTwice_IsRefusedUntilTheFirstHasGone) {
  {
    const auto first = Take();
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status second = Take().status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()),
                HasSubstr(absl::StrCat("in use by another run (pid ", ::getpid(), " on ")));
    EXPECT_FALSE(Take(FolderClaim::kCheck).ok()) << "the launcher refuses it, too";
  }
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(said_, "");
}

// Taking a lock overwrites the lock file's text.
TEST_F(SaveFolder, WhoseLockIsALink_IsRefusedAndNothingIsWrittenToWhereItLeads) {
  const std::string precious = folder_.Write("precious", "words");
  folder_.Write("run/other", "");
  fs::create_symlink(precious, fs::path(options_.save) / ".geminid-lock");
  const absl::Status status = Take().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not a file that a run made"));
  EXPECT_EQ(fs::file_size(precious), 5u);
}

TEST_F(SaveFolder, OfAKilledProcess_IsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = Take();
    (void)!::write(ready[1], lock.ok() ? "y" : "n", 1);
    ::pause();
    ::_exit(1);
  }
  char has_it = 0;
  ASSERT_EQ(::read(ready[0], &has_it, 1), 1);
  EXPECT_EQ(has_it, 'y');
  EXPECT_THAT(std::string(Take().status().message()), HasSubstr(absl::StrCat("pid ", child)));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(Take().ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(SaveFolder, AfterARestart_WaitsForTheRankBefore) {
  options_.timeout = absl::Seconds(60);
  auto before = Take();
  ASSERT_TRUE(before.ok());
  std::thread ends([&] { before->reset(); });
  EXPECT_TRUE(Take(FolderClaim::kTakeAgain).ok());
  ends.join();
  options_.timeout = absl::Milliseconds(200);
  const auto stays = Take();
  EXPECT_EQ(Take(FolderClaim::kTakeAgain).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SaveFolder, WhereThereAreNoLocks_IsTakenAndSaid) {
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
    lock_error = error;
    said_.clear();
    const auto first = Take();
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_THAT(said_, HasSubstr("has no locks")) << error;
    EXPECT_TRUE(Take(FolderClaim::kCheck).ok());
  }
  lock_error = EIO;
  EXPECT_FALSE(Take().ok());
}

TEST_F(SaveFolder, WithCheckpointsOfOthers_IsRefusedUnlessTheyAreResumed) {
  AddCheckpoint("step-000000010");
  AddCheckpoint("step-000000030");
  for (const FolderClaim claim : {FolderClaim::kCheck, FolderClaim::kTake}) {
    const absl::Status status = Take(claim).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--save-over"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("the newest step-000000030"));
  }
  EXPECT_TRUE(Take(FolderClaim::kTakeAgain).ok()) << "after a restart they are its own";
  options_.resume = true;
  EXPECT_TRUE(Take().ok());
  EXPECT_THAT(Finished(), ElementsAre("step-000000010", "step-000000030"));
}

TEST_F(SaveFolder, SavedOver_SetsTheOthersAsideAndOnlyWhereItTrains) {
  AddCheckpoint("step-000000030");
  options_.save_over = true;
  ASSERT_TRUE(Take(FolderClaim::kCheck).ok());
  EXPECT_THAT(Finished(), ElementsAre("step-000000030"));
  ASSERT_TRUE(Take(FolderClaim::kTake).ok());
  EXPECT_THAT(Finished(), IsEmpty());
  EXPECT_TRUE(fs::exists(folder_ / "run/step-000000030.replaced/file")) << "until one is saved";
  AddCheckpoint("step-000000005");
  ASSERT_TRUE(Take(FolderClaim::kTakeAgain).ok());
  EXPECT_THAT(Finished(), ElementsAre("step-000000005"));
}

TEST_F(SaveFolder, WhatInterruptedSavesLeft_GoesWhereNobodyElseCanSave) {
  AddCheckpoint("step-000000010.unfinished");
  folder_.Write("run/notes.unfinished/file", "not a checkpoint");
  lock_error = ENOLCK;
  ASSERT_TRUE(Take().ok());
  EXPECT_TRUE(fs::exists(folder_ / "run/step-000000010.unfinished"));
  lock_error = 0;
  ASSERT_TRUE(Take().ok());
  EXPECT_FALSE(fs::exists(folder_ / "run/step-000000010.unfinished"));
  EXPECT_TRUE(fs::exists(folder_ / "run/notes.unfinished"));
}

}  // namespace
}  // namespace geminid::trainer
