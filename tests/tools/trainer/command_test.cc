#include "tests/tools/trainer/command.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

// Forks a test process that only runs the program.
pid_t RunAsATest(const std::vector<std::string>& arguments) {
  const pid_t test = fork();
  if (test == 0) {
    RunTrainer(arguments);
    _exit(0);
  }
  return test;
}

TEST(RunTrainer, OfATestThatIsKilled_EndsWithTheTest) {
  const base::TemporaryFolder folder;
  const std::string log = folder / "log";
  const pid_t test =
      RunAsATest({"--text", folder.Write("text", std::string(3000, 'a')), "--model", "gpt2-tiny",
                  "--steps", "1000000", "--log", log});
  std::error_code none_yet;
  while (std::filesystem::file_size(log, none_yet) == 0 || none_yet) {
    poll(nullptr, 0, 5);  // a file causes no event
    ASSERT_EQ(waitpid(test, nullptr, WNOHANG), 0) << "the run ended before it was interrupted";
  }
  const std::vector<pid_t> trainers = ChildrenOf(test, GEMINID_TRAIN_BINARY);
  ASSERT_EQ(trainers.size(), 1u);
  const base::UniqueFd trainer(static_cast<int>(syscall(SYS_pidfd_open, trainers[0], 0)));
  ASSERT_TRUE(trainer.valid());
  kill(test, SIGKILL);
  waitpid(test, nullptr, 0);
  pollfd ends = {trainer.get(), POLLIN, 0};
  constexpr int kPatienceMilliseconds = 120'000;
  EXPECT_EQ(poll(&ends, 1, kPatienceMilliseconds), 1) << "process " << trainers[0] << " lives on";
}

}  // namespace
}  // namespace geminid::trainer
