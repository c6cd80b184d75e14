#include "base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "tests/base/temporary_folder.h"

namespace geminid::base {
namespace {

using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  // The output of a shell script, whose exit code must be 0.
  std::string Run(const std::string& script, ChildProgram program = {}) {
    program.arguments = {"/bin/sh", "-c", script};
    if (program.output.empty()) program.output = folder_ / "output";
    const absl::StatusOr<pid_t> pid = StartChild(program);
    EXPECT_TRUE(pid.ok()) << pid.status();
    int status = -1;
    if (pid.ok()) waitpid(*pid, &status, 0);
    EXPECT_EQ(status, 0);
    std::ostringstream text;
    text << std::ifstream(program.output).rdbuf();
    return text.str();
  }

  std::string WriteAndOpen(const std::string& name, const std::string& text, UniqueFd* fd) {
    const std::string path = folder_.Write(name, text);
    *fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return path;
  }

  const TemporaryFolder folder_;
};

TEST_F(ChildProcessTest, Output_IsAppendedAndTakesErrorsOnlyWhereAsked) {
  EXPECT_EQ(Run("echo one"), "one\n");
  EXPECT_EQ(Run("echo two; echo three >&2", {.errors_to_output = true}), "one\ntwo\nthree\n");
}

TEST_F(ChildProcessTest, InputThatIsNotRead_IsEmpty) {
  EXPECT_EQ(Run("cat; echo end", {.reads_input = false}), "end\n");
}

TEST_F(ChildProcessTest, Environment_IsThisProcessesOrWhatIsGiven) {
  ::setenv("GEMINID_TEST_CHILD", "here", 1);
  EXPECT_EQ(Run("echo $GEMINID_TEST_CHILD"), "here\n");
  EXPECT_EQ(Run("echo $A$GEMINID_TEST_CHILD",
                {.environment = {{"A=there"}}, .output = folder_ / "other"}),
            "there\n");
  ::unsetenv("GEMINID_TEST_CHILD");
}

TEST_F(ChildProcessTest, Folder_IsThisProcessesOrTheOneGiven) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(Run("pwd -P"), here + "\n");
  const UniqueFd other(::open("/", O_PATH | O_CLOEXEC));
  EXPECT_EQ(Run("pwd -P", {.folder = other.get(), .output = folder_ / "of another"}), "/\n");
}

// Whatever numbers they have here: exchanged numbers, and equal ones on both sides.
TEST_F(ChildProcessTest, Gifts_HaveTheirNumbersWithoutClosingOneAnother) {
  UniqueFd a, b;
  WriteAndOpen("a", "a\n", &a);
  WriteAndOpen("b", "b\n", &b);
  const auto read = [](int first, int second) {
    return absl::StrCat("cat <&", first, "; cat <&", second);
  };
  EXPECT_EQ(Run(read(a.get(), b.get()),
                {.descriptors = {{a.get(), b.get()}, {b.get(), a.get()}}, .output = folder_ / "1"}),
            "b\na\n");
  ::lseek(a.get(), 0, SEEK_SET);
  ::lseek(b.get(), 0, SEEK_SET);
  EXPECT_EQ(Run(read(a.get(), 9),
                {.descriptors = {{a.get(), a.get()}, {b.get(), 9}}, .output = folder_ / "2"}),
            "a\nb\n");
}

TEST_F(ChildProcessTest, SignalsBlockedOrIgnoredHere_AreNeitherThere) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const auto handler = ::signal(SIGUSR2, SIG_IGN);
  const std::string masks = Run("sed -n 's/^Sig\\(Blk\\|Ign\\):[[:space:]]*//p' /proc/self/status");
  ::signal(SIGUSR2, handler);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::istringstream lines(masks);
  uint64_t blocked = ~uint64_t{0}, ignored = ~uint64_t{0};
  lines >> std::hex >> blocked >> ignored;
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  EXPECT_EQ(blocked, 0u);
  EXPECT_EQ(ignored & (bit(SIGUSR2) | bit(SIGPIPE) | bit(SIGHUP)), 0u);
}

TEST_F(ChildProcessTest, ProgramThatIsNotThere_IsNotFoundByName) {
  const absl::Status status = StartChild({.arguments = {"/nowhere/program"}}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/program"));
}

}  // namespace
}  // namespace geminid::base
