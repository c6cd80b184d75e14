#include "daemon/os/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::os {
namespace {

using ::testing::HasSubstr;

class FileLockTest : public ::testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/lock"; }
  base::TemporaryFolder folder_;
};

TEST_F(FileLockTest, Acquire_Twice_NamesTheHolder) {
  absl::StatusOr<FileLock> first = FileLock::Acquire(Path());
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = FileLock::Acquire(Path()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("pid ", ::getpid())));
}

// A user who can open the file could wait for a shared lock, and would get it when the daemon ends.
TEST_F(FileLockTest, File_IsClosedToOthers_AlsoWhereAnOlderReleaseLeftItOpen) {
  struct stat facts = {};
  ASSERT_TRUE(FileLock::Acquire(Path()).ok());
  ASSERT_EQ(::stat(Path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777u, 0600u);
  ASSERT_EQ(::chmod(Path().c_str(), 0644), 0);
  ASSERT_TRUE(FileLock::Acquire(Path()).ok());
  ASSERT_EQ(::stat(Path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777u, 0600u);
}

TEST_F(FileLockTest, Acquire_AfterRelease_CountsTheEpoch) {
  for (uint64_t epoch = 1; epoch <= 12; ++epoch) {
    absl::StatusOr<FileLock> lock = FileLock::Acquire(Path());
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(lock->epoch(), epoch);
  }
}

TEST_F(FileLockTest, Acquire_FileOfSomethingElse_StartsAnew) {
  std::ofstream(Path()) << "pid x epoch y, and a long story besides that goes on for a while";
  absl::StatusOr<FileLock> lock = FileLock::Acquire(Path());
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(lock->epoch(), 1u);
  std::ifstream file(Path());
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, absl::StrCat("pid ", ::getpid(), " epoch 1"));
}

TEST_F(FileLockTest, Acquire_Folder_IsRefused) {
  ASSERT_EQ(::mkdir(Path().c_str(), 0700), 0);
  EXPECT_FALSE(FileLock::Acquire(Path()).ok());
}

TEST_F(FileLockTest, Acquire_Pipe_IsRefused) {
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  EXPECT_EQ(FileLock::Acquire(Path()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace geminid::os
