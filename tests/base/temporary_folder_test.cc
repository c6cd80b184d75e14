#include "tests/base/temporary_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace geminid::base {
namespace {

// Makes a folder in a process that is killed before it could remove the folder.
std::string FolderOfAKilledProcess() {
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    const TemporaryFolder folder;
    folder.Write("inner/file", "text");
    (void)!write(pipe_fds[1], folder.path().data(), folder.path().size());
    raise(SIGKILL);
  }
  close(pipe_fds[1]);
  waitpid(child, nullptr, 0);
  char path[1024];
  const ssize_t size = read(pipe_fds[0], path, sizeof(path));
  close(pipe_fds[0]);
  return {path, static_cast<size_t>(size < 0 ? 0 : size)};
}

TEST(TemporaryFolder, OfAKilledProcess_GoesWithTheNextSweep) {
  const std::string path = FolderOfAKilledProcess();
  ASSERT_FALSE(path.empty());
  TemporaryFolder::RemoveAbandoned();
  EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

TEST(TemporaryFolder, OfALivingProcess_OutlivesTheSweepsOfOthers) {
  const TemporaryFolder folder;
  const pid_t other = fork();
  if (other == 0) {
    TemporaryFolder::RemoveAbandoned();
    _exit(0);
  }
  waitpid(other, nullptr, 0);
  TemporaryFolder::RemoveAbandoned();
  EXPECT_TRUE(std::filesystem::exists(folder.path()));
}

TEST(TemporaryFolder, OutOfScope_IsGone) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace geminid::base
