#include "daemon/service/entry/stop_signs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace geminid::service {
namespace {

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read = base::UniqueFd(ends[0]);
    write = base::UniqueFd(ends[1]);
  }
  base::UniqueFd read;
  base::UniqueFd write;
};

class StopSignsTest : public ::testing::Test {
 protected:
  StopSignsTest() { options_.signal_fd = std::move(signals_.read); }

  void Receive(int number, pid_t sender) {
    signalfd_siginfo signal = {};
    signal.ssi_signo = static_cast<uint32_t>(number);
    signal.ssi_pid = static_cast<uint32_t>(sender);
    ASSERT_EQ(::write(signals_.write.get(), &signal, sizeof(signal)), ssize_t{sizeof(signal)});
    loop_->RunOnce(0);
  }
  bool stopping() const { return vitals_.stopping.load(); }

  Pipe signals_;
  Pipe terminal_;
  DaemonOptions options_;
  Vitals vitals_;
  int reloads_ = 0;
  const std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::Create();
  StopSigns signs_{&options_, loop_.get(), &vitals_, [this] { ++reloads_; }};
};

TEST_F(StopSignsTest, Sigterm_StopsTheDaemon) {
  ASSERT_TRUE(signs_.Watch().ok());
  Receive(SIGTERM, ::getpid());
  EXPECT_TRUE(stopping());
  EXPECT_EQ(reloads_, 0);
}

TEST_F(StopSignsTest, Sighup_HasTheSettingsReadAgain) {
  ASSERT_TRUE(signs_.Watch().ok());
  Receive(SIGHUP, ::getpid());
  EXPECT_FALSE(stopping());
  EXPECT_EQ(reloads_, 1);
}

TEST_F(StopSignsTest, SignalThatIsNotTheParents_IsNothingToAPrivateDaemon) {
  options_.parent_pid = ::getpid();
  ASSERT_TRUE(signs_.Watch().ok());
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) Receive(number, ::getpid() + 1);
  EXPECT_FALSE(stopping());
  EXPECT_EQ(reloads_, 0);
  Receive(SIGTERM, ::getpid());
  EXPECT_TRUE(stopping());
}

TEST_F(StopSignsTest, TerminalThatIsClosed_StopsTheDaemon) {
  options_.terminal = std::move(terminal_.read);
  ASSERT_TRUE(signs_.Watch().ok());
  ASSERT_EQ(::write(terminal_.write.get(), "x", 1), 1);
  loop_->RunOnce(0);
  EXPECT_FALSE(stopping()) << "somebody typed";
  terminal_.write.Reset();
  loop_->RunOnce(0);
  EXPECT_TRUE(stopping());
}

// The end of the terminal sends SIGHUP, which then does not mean to read the configuration again.
TEST_F(StopSignsTest, SighupOfAClosedTerminal_ReadsNothingAgain) {
  options_.terminal = std::move(terminal_.read);
  ASSERT_TRUE(signs_.Watch().ok());
  terminal_.write.Reset();
  Receive(SIGHUP, 0);
  EXPECT_TRUE(stopping());
  EXPECT_EQ(reloads_, 0);
}

TEST_F(StopSignsTest, ParentThatEnds_IsGoneAndStopsNothing) {
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    ::pause();
    ::_exit(0);
  }
  options_.parent_pid = parent;
  ASSERT_TRUE(signs_.Watch().ok());
  loop_->RunOnce(0);
  EXPECT_FALSE(signs_.parent_gone());
  ASSERT_EQ(::kill(parent, SIGKILL), 0);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  loop_->RunOnce(0);
  EXPECT_TRUE(signs_.parent_gone());
  EXPECT_FALSE(stopping());
}

TEST_F(StopSignsTest, ParentThatHasEnded_IsGoneFromTheStart) {
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  options_.parent_pid = parent;
  ASSERT_TRUE(signs_.Watch().ok());
  EXPECT_TRUE(signs_.parent_gone());
}

}  // namespace
}  // namespace geminid::service
