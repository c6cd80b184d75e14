#include "daemon/service/entry/socket_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/config/settings.h"
#include "daemon/os/event.h"
#include "proto/shm/attach_messages.h"
#include "tests/base/temporary_folder.h"

namespace geminid::service {
namespace {

class SocketFilesTest : public ::testing::Test {
 protected:
  absl::StatusOr<SocketFiles> Acquire() { return SocketFiles::Acquire(socket_, options_); }
  std::string Beside(const char* suffix) const { return absl::StrCat(socket_, suffix); }
  // Makes the same files as the servers.
  void MakeAll() const {
    for (const char* suffix : {"", shm::kAttachSuffix, config::kHttpSuffix, shm::kHolderSuffix}) {
      folder_.Write("new/socket" + std::string(suffix), "");
    }
  }
  static bool IsThere(const std::string& path) { return std::filesystem::exists(path); }

  const base::TemporaryFolder folder_;
  const std::string socket_ = folder_ / "new/socket";
  DaemonOptions options_;
};

TEST_F(SocketFilesTest, FolderThatIsNotThere_IsMadeForWhomTheDaemonServes) {
  ASSERT_TRUE(Acquire().ok());
  struct stat made = {};
  ASSERT_EQ(::stat((folder_ / "new").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, ::geteuid() == 0 ? 0755u : 0700u);
}

TEST_F(SocketFilesTest, FolderThatCannotBeMade_IsAnErrorWithAnotherPlace) {
  const absl::Status refused = SocketFiles::Acquire(folder_ / "no/such/socket", options_).status();
  EXPECT_NE(refused.message().find("choose another --socket"), std::string::npos) << refused;
}

TEST_F(SocketFilesTest, CheckOfAFolder_AgreesWithItsMakingAndMakesNothing) {
  EXPECT_TRUE(SocketFiles::CheckFolder(socket_).ok());
  EXPECT_FALSE(IsThere(folder_ / "new"));
  EXPECT_TRUE(SocketFiles::CheckFolder(folder_ / "socket").ok());
  EXPECT_TRUE(SocketFiles::CheckFolder("socket").ok());
  EXPECT_EQ(SocketFiles::CheckFolder(folder_ / "no/such/socket"),
            SocketFiles::Acquire(folder_ / "no/such/socket", options_).status());
}

TEST_F(SocketFilesTest, SecondDaemon_IsRefusedUntilTheFirstReleases) {
  absl::StatusOr<SocketFiles> first = Acquire();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Acquire().status().code(), absl::StatusCode::kUnavailable);
  const uint64_t epoch = first->epoch();
  first->Release({});
  EXPECT_FALSE(first->is_locked());
  const absl::StatusOr<SocketFiles> second = Acquire();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->epoch(), epoch + 1);
}

TEST_F(SocketFilesTest, OneListenerOfTwo_IsRefused) {
  options_.attach_listener = *os::CreateEvent();
  EXPECT_EQ(Acquire().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SocketFilesTest, FileThatIsNoSocket_IsLeftAlone) {
  folder_.Write("new/socket", "somebody's");
  EXPECT_EQ(Acquire().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(IsThere(socket_));
}

TEST_F(SocketFilesTest, Release_RemovesWhatTheDaemonMadeAndKeepsTheLockFile) {
  absl::StatusOr<SocketFiles> files = Acquire();
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE(files->AddMetricsSocket().ok());
  EXPECT_EQ(files->metrics_socket(), Beside(config::kHttpSuffix));
  MakeAll();
  files->Release({.control = true, .holder = true, .sessions = true});
  for (const char* suffix : {"", shm::kAttachSuffix, config::kHttpSuffix, shm::kHolderSuffix}) {
    EXPECT_FALSE(IsThere(Beside(suffix))) << suffix;
  }
  EXPECT_TRUE(IsThere(Beside(shm::kLockSuffix)));
}

TEST_F(SocketFilesTest, WhatTheDaemonDidNotOpen_StaysAtItsEnd) {
  absl::StatusOr<SocketFiles> files = Acquire();
  ASSERT_TRUE(files.ok()) << files.status();
  MakeAll();
  files->Release({});
  EXPECT_TRUE(IsThere(socket_));
  EXPECT_TRUE(IsThere(Beside(config::kHttpSuffix)));
  EXPECT_TRUE(IsThere(Beside(shm::kHolderSuffix)));
}

TEST_F(SocketFilesTest, ListenersThatWereHandedOver_KeepTheirFiles) {
  options_.control_listener = *os::CreateEvent();
  options_.attach_listener = *os::CreateEvent();
  MakeAll();
  absl::StatusOr<SocketFiles> files = Acquire();
  ASSERT_TRUE(files.ok()) << files.status();
  files->Release({.control = true, .holder = true, .sessions = true});
  EXPECT_TRUE(IsThere(socket_));
  EXPECT_TRUE(IsThere(Beside(shm::kAttachSuffix)));
}

TEST_F(SocketFilesTest, PrivateDaemonsLockFile_GoesWithItsSessions) {
  options_.parent_pid = ::getpid();
  for (const bool sessions_go_on : {true, false}) {
    absl::StatusOr<SocketFiles> files = Acquire();
    ASSERT_TRUE(files.ok()) << files.status();
    files->Release({.sessions = !sessions_go_on});
    EXPECT_EQ(IsThere(Beside(shm::kLockSuffix)), sessions_go_on);
  }
  EXPECT_TRUE(IsThere(folder_ / "new")) << "whose folder it is nobody knows";
}

}  // namespace
}  // namespace geminid::service
