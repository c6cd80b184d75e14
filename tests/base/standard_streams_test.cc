#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

namespace geminid::base {
namespace {

// The exit code of `body` in a process of its own, which must exit by itself; 0 is right.
int CodeOfChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StandardStreams, ThatAreClosed_LeadNowhereAndAreNobodyElses) {
  EXPECT_EQ(CodeOfChild([] {
              for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(fd);
              PrepareStandardStreams();
              if (open("/dev/null", O_RDONLY) <= STDERR_FILENO) return 1;
              char byte = 0;
              if (read(STDIN_FILENO, &byte, 1) != 0) return 2;
              if (write(STDOUT_FILENO, &byte, 1) != -1 || errno != EBADF) return 3;
              return write(STDERR_FILENO, &byte, 1) == 1 ? 0 : 4;
            }),
            0);
}

TEST(StandardStreams, ThatAreOpen_StayAsTheyAre) {
  EXPECT_EQ(CodeOfChild([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              dup2(ends[1], STDOUT_FILENO);
              PrepareStandardStreams();
              char byte = 'a';
              if (write(STDOUT_FILENO, &byte, 1) != 1) return 2;
              return read(ends[0], &byte, 1) == 1 ? 0 : 3;
            }),
            0);
}

TEST(StandardStreams, WithoutAReader_EndNoProcess) {
  EXPECT_EQ(CodeOfChild([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              close(ends[0]);
              dup2(ends[1], STDERR_FILENO);
              PrepareStandardStreams();
              WriteStandardError("words that nobody reads\n");
              return 0;
            }),
            0);
}

TEST(StandardStreams, OfTheNextProgram_HaveTheUsualSignals) {
  EXPECT_EQ(CodeOfChild([] {
              PrepareStandardStreams();
              RestoreStreamSignals();
              return raise(SIGPIPE);
            }),
            128 + SIGPIPE);
}

// The reader is like a pager that has read enough for now, or a stopped terminal.
TEST(WriteStandardError, WithAReaderThatSleeps_WaitsOnceAndWritesWhenItReadsAgain) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(CodeOfChild([&] {
              dup2(ends[1], STDERR_FILENO);
              constexpr int kPipeBytes = 4096;
              fcntl(STDERR_FILENO, F_SETPIPE_SZ, kPipeBytes);
              const std::string page(kPipeBytes, 'x');
              for (int i = 0; i < 100; ++i) WriteStandardError(page);
              std::string seen(kPipeBytes, ' ');
              if (read(ends[0], seen.data(), seen.size()) != kPipeBytes || seen != page) return 1;
              WriteStandardError("awake");
              seen.resize(6);
              return read(ends[0], seen.data(), seen.size()) == 5 ? 0 : 2;
            }),
            0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace geminid::base
