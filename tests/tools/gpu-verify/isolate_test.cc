#include "tools/gpu-verify/isolate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/gpu-verify/process.h"

namespace geminid::gpu_verify {
namespace {

using testing::HasSubstr;

constexpr double kAmpleSeconds = 60;

Outcome RunHere(const std::function<Outcome(const Progress&)>& body, double limit = kAmpleSeconds) {
  return RunIsolated(body, limit, [](const std::string&) {});
}

TEST(Isolation, OutcomeOfTheBody_ArrivesWhole) {
  const Outcome outcome = RunHere([](const Progress&) {
    Outcome result = Judge(false, "a figure", "a reason");
    result.numbers = {{"x_seconds", 0.1}, {"y_bytes", 1e18}};
    return result;
  });
  EXPECT_EQ(outcome.verdict, Verdict::kFail);
  EXPECT_EQ(outcome.figure, "a figure");
  EXPECT_EQ(outcome.reason, "a reason");
  const std::vector<std::pair<std::string, double>> expected = {{"x_seconds", 0.1},
                                                                {"y_bytes", 1e18}};
  EXPECT_EQ(outcome.numbers, expected);
}

TEST(Isolation, Progress_ArrivesInOrder) {
  std::vector<std::string> seen;
  RunIsolated(
      [](const Progress& progress) {
        progress("one");
        progress("two\nlines");
        return Pass("");
      },
      kAmpleSeconds, [&](const std::string& text) { seen.push_back(text); });
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "two\nlines"}));
}

TEST(Isolation, Exception_IsAFailWithItsWords) {
  const Outcome outcome =
      RunHere([](const Progress&) -> Outcome { throw ProbeError("cuFoo: bad"); });
  EXPECT_EQ(outcome.verdict, Verdict::kFail);
  EXPECT_EQ(outcome.reason, "cuFoo: bad");
}

TEST(Isolation, Crash_IsAFailThatNamesTheSignal) {
  const Outcome outcome = RunHere([](const Progress&) {
    raise(SIGKILL);
    return Pass("");
  });
  EXPECT_EQ(outcome.verdict, Verdict::kFail);
  EXPECT_THAT(outcome.reason, HasSubstr("Killed"));
}

TEST(Isolation, SilentEnd_IsAFailWithItsStatus) {
  const Outcome outcome = RunHere([](const Progress&) -> Outcome { _exit(7); });
  EXPECT_EQ(outcome.verdict, Verdict::kFail);
  EXPECT_THAT(outcome.reason, HasSubstr("exit status 7"));
}

TEST(Isolation, HangPastTheLimit_IsAFailAndLeavesNoProcess) {
  pid_t leader = 0;
  const double begin = Now();
  const Outcome outcome = RunIsolated(
      [](const Progress& progress) -> Outcome {
        signal(SIGTERM, SIG_IGN);
        const Role role = Role::Start("sleeper", [](Channel&) {
          while (true) pause();
        });
        progress(std::to_string(getpid()));
        while (true) pause();
      },
      3, [&](const std::string& text) { leader = std::stoi(text); });
  EXPECT_EQ(outcome.verdict, Verdict::kFail);
  EXPECT_THAT(outcome.reason, HasSubstr("no answer within 3.0 s"));
  EXPECT_LT(Now() - begin, kAmpleSeconds);
  ASSERT_GT(leader, 0);
  EXPECT_EQ(kill(-leader, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Isolation, OrphansOfAFinishedBody_AreEnded) {
  pid_t leader = 0;
  const Outcome outcome = RunIsolated(
      [](const Progress& progress) {
        progress(std::to_string(getpid()));
        if (fork() == 0) {
          while (true) pause();
        }
        return Pass("done");
      },
      kAmpleSeconds, [&](const std::string& text) { leader = std::stoi(text); });
  EXPECT_EQ(outcome.verdict, Verdict::kPass);
  ASSERT_GT(leader, 0);
  EXPECT_EQ(kill(-leader, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Isolation, OutcomeLongerThanAPipe_ArrivesWhole) {
  const std::string figure(300'000, 'x');
  EXPECT_EQ(RunHere([&](const Progress&) { return Pass(figure); }).figure, figure);
}

}  // namespace
}  // namespace geminid::gpu_verify
