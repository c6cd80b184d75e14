// The program on a pseudo-terminal: the screens of geminictl top, and how the program ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_code.h"
#include "base/unique_fd.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"
#include "tools/geminictl/output/format.h"

namespace geminid::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPatienceMilliseconds = 30000;
constexpr char kLeaveScreen[] = "\x1b[?25h\x1b[?1049l";

class OnTerminal : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  void TearDown() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  // Everything for the child is made before the fork, because this process has other threads.
  void Start(std::vector<std::string> arguments, std::vector<std::string> variables,
             uint16_t columns = 100, uint16_t rows = 24) {
    arguments.insert(arguments.begin(), GEMINICTL_PROGRAM);
    variables.push_back("GEMINID_SOCKET=" + env_.socket());
    variables.push_back("TERM=xterm");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    winsize size = {};
    size.ws_row = rows;
    size.ws_col = columns;
    int terminal = -1;
    pid_ = ::forkpty(&terminal, nullptr, nullptr, &size);
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      if (in_background_) EndAsBackgroundJobDoes();
      ::execve(GEMINICTL_PROGRAM, argv.data(), environment.data());
      ::_exit(127);
    }
    terminal_ = base::UniqueFd(terminal);
    ::fcntl(terminal_.get(), F_SETFD, FD_CLOEXEC);
  }

  // Returns in a background job. The caller waits for the job as a shell does, and ends with the
  // job's exit code or with kStopped.
  static constexpr int kStopped = 99;
  static void EndAsBackgroundJobDoes() {
    const pid_t job = ::fork();
    if (job == 0) {
      ::setpgid(0, 0);
      return;
    }
    int status = 0;
    ::waitpid(job, &status, WUNTRACED);
    if (WIFSTOPPED(status)) ::kill(job, SIGKILL);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : kStopped);
  }

  // False after the terminal has closed.
  bool ReadMore() {
    pollfd ready = {terminal_.get(), POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMilliseconds) != 1) return false;
    char buffer[4096];
    const ssize_t got = ::read(terminal_.get(), buffer, sizeof(buffer));
    if (got <= 0) return false;
    seen_.append(buffer, static_cast<size_t>(got));
    return true;
  }

  bool ReadUntil(const std::string& text) {
    while (seen_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }

  void Type(char key) { ASSERT_EQ(::write(terminal_.get(), &key, 1), 1); }

  // The exit code, or -1 if a signal ended the program.
  int Wait() {
    while (ReadMore()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  geminid::testing::DaemonEnv env_;
  base::UniqueFd terminal_;
  std::string seen_;
  pid_t pid_ = 0;
  bool in_background_ = false;
};

TEST_F(OnTerminal, Top_DrawsUntilQ) {
  Start({"top", "--interval", "0.1"}, {"LANG=C.UTF-8"});
  ASSERT_TRUE(ReadUntil("rates of the last")) << seen_;  // the second reading
  EXPECT_THAT(seen_, AllOf(HasSubstr("\x1b[?1049h"), HasSubstr("serving"), HasSubstr("·"),
                           Not(HasSubstr(kLeaveScreen))));
  Type('q');
  EXPECT_EQ(Wait(), base::kExitOk);
  EXPECT_THAT(seen_, HasSubstr(kLeaveScreen));
}

// The lines of the last complete screen, without escape sequences.
std::vector<std::string> LastPicture(const std::string& seen) {
  const size_t end = seen.rfind("\x1b[J");
  const size_t begin = seen.rfind("\x1b[H", end);
  std::vector<std::string> lines(1);
  for (size_t i = begin; i < end; ++i) {
    if (seen[i] == '\x1b') {
      i = seen.find_first_not_of("[?0123456789;", i + 1);
    } else if (seen[i] == '\n') {
      lines.emplace_back();
    } else if (seen[i] != '\r') {
      lines.back() += seen[i];
    }
  }
  return lines;
}

TEST_F(OnTerminal, Top_FitsEveryWindow) {
  std::vector<std::unique_ptr<geminid::testing::RawClient>> clients;
  for (int i = 0; i < 6; ++i) {
    auto client = geminid::testing::RawClient::Attach(env_.socket());
    ASSERT_TRUE(client.ok()) << client.status();
    clients.push_back(*std::move(client));
  }
  constexpr std::pair<uint16_t, uint16_t> kWindows[] = {{40, 10}, {60, 10}, {60, 24}, {80, 24}};
  for (const auto& [columns, rows] : kWindows) {
    seen_.clear();
    Start({"top", "--interval", "0.1"}, {"LANG=C.UTF-8"}, columns, rows);
    ASSERT_TRUE(ReadUntil("rates of the last")) << seen_;
    ASSERT_TRUE(ReadUntil("q quit")) << seen_;
    Type('q');
    EXPECT_EQ(Wait(), base::kExitOk);
    const std::vector<std::string> lines = LastPicture(seen_);
    EXPECT_LE(lines.size(), rows);
    std::string all;
    for (const std::string& line : lines) {
      EXPECT_LE(DisplayWidth(line), columns) << line;
      all += line + "\n";
    }
    EXPECT_THAT(all, AllOf(HasSubstr("SESSION"), HasSubstr("demo"), HasSubstr("q quit")));
  }
}

TEST_F(OnTerminal, Top_GivesTheTerminalBackAfterASignal) {
  Start({"top", "--interval", "3600"}, {});
  ASSERT_TRUE(ReadUntil("serving")) << seen_;
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), base::kExitOk);
  EXPECT_THAT(seen_, HasSubstr(kLeaveScreen));
}

// A background job that changes the terminal is stopped, and then SIGTERM does not end it.
TEST_F(OnTerminal, TopInTheBackground_PrintsOnceAsWithoutATerminal) {
  in_background_ = true;
  Start({"top"}, {});
  EXPECT_EQ(Wait(), base::kExitOk) << seen_;
  EXPECT_THAT(seen_, AllOf(HasSubstr("serving"), Not(HasSubstr(kLeaveScreen))));
}

TEST_F(OnTerminal, WatchInTheBackground_PrintsAsWithoutATerminal) {
  in_background_ = true;
  Start({"--watch", "0.1", "--times", "2", "status"}, {});
  EXPECT_EQ(Wait(), base::kExitOk) << seen_;
  EXPECT_THAT(seen_, Not(HasSubstr(kLeaveScreen)));
}

TEST_F(OnTerminal, Top_OutlivesTheDaemon) {
  Start({"top", "--interval", "0.1"}, {});
  ASSERT_TRUE(ReadUntil("serving")) << seen_;
  env_.Stop();
  ASSERT_TRUE(ReadUntil("waiting for the daemon")) << seen_;
  seen_.clear();
  ASSERT_TRUE(env_.Start().ok());
  ASSERT_TRUE(ReadUntil("serving")) << seen_;
  Type('q');
  EXPECT_EQ(Wait(), base::kExitOk);
}

TEST_F(OnTerminal, TopWithoutDaemon_IsUnavailable) {
  env_.Stop();
  Start({"top"}, {});
  EXPECT_EQ(Wait(), base::kExitUnavailable);
  EXPECT_THAT(seen_, HasSubstr("no daemon"));
}

TEST_F(OnTerminal, Colors_FollowNoColor) {
  Start({"status"}, {});
  EXPECT_EQ(Wait(), base::kExitOk);
  EXPECT_THAT(seen_, AllOf(HasSubstr("\x1b[1m"), HasSubstr("1.0 GiB")));
  seen_.clear();
  Start({"status"}, {"NO_COLOR=1"});
  EXPECT_EQ(Wait(), base::kExitOk);
  EXPECT_THAT(seen_, AllOf(Not(HasSubstr("\x1b")), HasSubstr("1.0 GiB")));
}

// The output and exit code of geminictl as user `uid`; -1 if the test cannot become this user.
struct Answer {
  int code = -1;
  std::string text;
};
Answer AskAs(uid_t uid, const std::string& socket, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GEMINICTL_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::string variable = "GEMINID_SOCKET=" + socket;
  char* environment[] = {variable.data(), nullptr};
  const base::UniqueFd program(::open(GEMINICTL_PROGRAM, O_RDONLY | O_CLOEXEC));
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(126);
    ::fexecve(program.get(), argv.data(), environment);
    ::_exit(127);
  }
  ::close(ends[1]);
  Answer answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    answer.text.append(buffer, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) answer.code = WEXITSTATUS(status);
  return answer;
}

// gRPC waits for ever for threads that it has counted and the system has refused.
TEST(OtherUser, WithTooFewProcesses_IsToldSo) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be a user without other processes";
  testing::DaemonEnvOptions options;
  options.for_everybody = true;
  testing::DaemonEnv env;
  ASSERT_TRUE(env.Start(options).ok());
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NPROC, &before), 0);
  for (const rlim_t most : {1, 2, 4, 6, 8}) {
    const rlimit few = {most, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NPROC, &few), 0);  // for root it applies only to later processes
    const Answer answer = AskAs(64011, env.socket(), {"status"});
    EXPECT_EQ(answer.code, base::kExitResourceExhausted) << most << ": " << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("limit of processes")) << most;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NPROC, &before), 0);
}

TEST(OtherUser, SeesWhoHoldsMemoryAndNotWhatIsInIt) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  testing::DaemonEnvOptions options;
  options.for_everybody = true;
  testing::DaemonEnv env;
  ASSERT_TRUE(env.Start(options).ok());
  absl::StatusOr<std::unique_ptr<testing::RawClient>> owner =
      testing::RawClient::Attach(env.socket());
  ASSERT_TRUE(owner.ok()) << owner.status();
  constexpr uid_t kStranger = 64001;
  const std::string session = std::to_string((*owner)->welcome().session_id);
  const Answer sessions = AskAs(kStranger, env.socket(), {"ls", "sessions"});
  EXPECT_EQ(sessions.code, base::kExitOk) << sessions.text;
  EXPECT_THAT(sessions.text, HasSubstr("demo"));
  for (const std::vector<std::string>& question :
       {std::vector<std::string>{"ls", "chunks", "--session", session},
        {"explain", session + "/0"},
        {"trace", "save", session, "-o", "/tmp/never-written.json"}}) {
    const Answer answer = AskAs(kStranger, env.socket(), question);
    EXPECT_EQ(answer.code, base::kExitPermission) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("is of tenant uid:0"));
  }
}

}  // namespace
}  // namespace geminid::ctl
