// How runs on a GPU end when something beneath them fails: the daemon is killed, the driver hangs,
// or the GPU falls off the bus. Each run says what happened, and leaves the GPUs' memory as it was.
// The driver is a double without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/base/temporary_folder.h"
#include "tests/gpu/double/node.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kWide = 400;
// Exit codes.
constexpr int kFailed = 1;
constexpr int kUnavailable = 3;
constexpr int kDeadline = 6;

class GpuEnds : public ::testing::Test {
 protected:
  // A run without end on the GPUs.
  Words Forever(const Words& more) const {
    Words words = {"--text",    text_, "--model",  "gpt2-tiny", "--batch", "2",
                   "--context", "8",   "--device", "cuda",      "--steps", "1000000"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Waits, because processes with memory may still be ending.
  void ExpectMemoryBack() const {
    for (int device = 0; device < kDevices; ++device) {
      while (node_.used_bytes(device) != 0) std::this_thread::yield();
    }
  }
  // The GPUs still work.
  void ExpectNextRunTrains() const {
    const CommandResult result = RunTrainer(Forever({"--steps", "2"}));
    EXPECT_EQ(result.code, 0) << result.err;
    ExpectMemoryBack();
  }

  static constexpr int kDevices = 2;
  gpu_double::Node node_{{.devices = kDevices,
                          .memory_bytes = 512 * kMiB,
                          .libcuda = GEMINID_CUDA_DOUBLE,
                          .libnvml = GEMINID_NVML_DOUBLE,
                          .kernels = GEMINID_DOUBLE_KERNELS,
                          .libnccl = GEMINID_NCCL_DOUBLE}};
  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", std::string(5000, 'x'));
};

// A driver or a GPU that does not answer. Runs wait some seconds for it.
class GpuHangs : public GpuEnds {};

TEST_F(GpuEnds, KilledDaemon_EndsTheRunWithItsReasonAndLeavesTheMemoryAsItWas) {
  for (const char* ranks : {"1", "2"}) {
    TrainerProcess run(Forever({"--ranks", ranks}), kWide);
    ASSERT_TRUE(run.WaitForStep(2)) << run.output();
    EXPECT_GT(node_.used_bytes(0), 0u);
    const std::vector<pid_t> daemons = run.Children(GEMINID_DAEMON_BINARY);
    ASSERT_EQ(daemons.size(), 1u);
    kill(daemons[0], SIGKILL);
    EXPECT_EQ(run.Wait(), kUnavailable) << run.output();
    EXPECT_THAT(run.output(), HasSubstr("a session on a GPU ends with its daemon"));
    ExpectMemoryBack();
  }
  ExpectNextRunTrains();
}

TEST_F(GpuEnds, KilledDaemonOfARunWithRestarts_CostsAStartAndNoMemory) {
  TrainerProcess run(Forever({"--ranks", "2", "--restarts", "1"}), kWide);
  ASSERT_TRUE(run.WaitForStep(2)) << run.output();
  const std::vector<pid_t> daemons = run.Children(GEMINID_DAEMON_BINARY);
  ASSERT_EQ(daemons.size(), 1u);
  kill(daemons[0], SIGKILL);
  ASSERT_TRUE(run.WaitFor("start 2: ", "\x1b[Kstep ")) << run.output();
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 128 + SIGINT) << run.output();
  ExpectMemoryBack();
}

TEST_F(GpuEnds, GpuThatIsLost_EndsTheRunWithItsReasonAndLeavesTheMemoryAsItWas) {
  for (const char* ranks : {"1", "2"}) {
    TrainerProcess run(Forever({"--ranks", ranks}), kWide);
    ASSERT_TRUE(run.WaitForStep(2)) << run.output();
    node_.SetLost(0, true);
    EXPECT_EQ(run.Wait(), kFailed) << run.output();
    EXPECT_THAT(run.output(), HasSubstr("this process cannot use the device any more"));
    ExpectMemoryBack();
    node_.SetLost(0, false);
  }
  ExpectNextRunTrains();
}

// Any thread may meet the hanging call.
TEST_F(GpuHangs, DriverThatHangs_EndsTheRunWithItsReasonAndLeavesTheMemoryAsItWas) {
  for (const std::string call : {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventQuery"}) {
    TrainerProcess run(Forever({"--timeout", "1", "--placement", "cpu"}), kWide);
    ASSERT_TRUE(run.WaitForStep(2)) << run.output();
    node_.Hang(call);
    EXPECT_EQ(run.Wait(), kDeadline) << call << ": " << run.output();
    EXPECT_THAT(run.output(),
                AnyOf(HasSubstr("driver has not returned for 5s"), HasSubstr("no progress for 5s")))
        << call;
    node_.EndHang(call);
    ExpectMemoryBack();
  }
  ExpectNextRunTrains();
}

TEST_F(GpuHangs, GpuThatDoesNothingAnyMore_EndsTheRunWithItsReasonAndLeavesTheMemoryAsItWas) {
  TrainerProcess run(Forever({"--timeout", "1"}), kWide);
  ASSERT_TRUE(run.WaitForStep(2)) << run.output();
  node_.Hold(0, true);
  EXPECT_EQ(run.Wait(), kDeadline) << run.output();
  EXPECT_THAT(run.output(), HasSubstr(" for 5s"));
  ExpectMemoryBack();
  node_.Hold(0, false);
  ExpectNextRunTrains();
}

}  // namespace
}  // namespace geminid::trainer
