// Properties of the host device and of the faulty decorator.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <vector>

#include "client/device/host/host_device.h"
#include "client/device/host/link_pacer.h"
#include "tests/client/device/faulty_device.h"
#include "tests/client/memory_files.h"

namespace geminid::device {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(LinkPacer, BackToBackCopies_TakeBytesOverBandwidthAndOneLatency) {
  LinkPacer pacer(1e9, 10e-6);
  const steady_clock::time_point start(std::chrono::hours(1));
  EXPECT_EQ(pacer.Arrival(start, 1000000) - start, milliseconds(1) + microseconds(10));
  EXPECT_EQ(pacer.Arrival(start, 2000000) - start, milliseconds(3) + microseconds(10));
}

TEST(LinkPacer, IdleLink_DoesNotSaveUpBandwidth) {
  LinkPacer pacer(1e6, 0);
  const steady_clock::time_point start(std::chrono::hours(1));
  pacer.Arrival(start, 1000);
  const steady_clock::time_point later = start + std::chrono::seconds(10);
  EXPECT_EQ(pacer.Arrival(later, 1000) - later, milliseconds(1));
}

TEST(LinkPacer, LateSubmission_KeepsTheLinksOwnTime) {
  LinkPacer pacer(1e6, 0);
  const steady_clock::time_point start(std::chrono::hours(1));
  pacer.Arrival(start, 10000);  // until 10 ms
  EXPECT_EQ(pacer.Arrival(start + milliseconds(5), 1000) - start, milliseconds(11));
}

TEST(LinkPacer, Unlimited_IsLatencyAlone) {
  LinkPacer pacer(0, 1e-3);
  const steady_clock::time_point start(std::chrono::hours(1));
  EXPECT_EQ(pacer.Arrival(start, uint64_t{1} << 40) - start, milliseconds(1));
}

void SubmitCopies(Device* device, std::vector<std::byte>* memory, int copies,
                  std::vector<absl::Status>* outcomes) {
  for (int i = 0; i < copies; ++i) {
    Copy copy;
    copy.destination = device->base();
    copy.source = memory->data();
    copy.bytes = memory->size();
    copy.on_done = [outcomes](const absl::Status& status) { outcomes->push_back(status); };
    device->copy_stream(Direction::kHostToDevice).Submit(std::move(copy));
  }
}

std::unique_ptr<Device> WithArena(std::unique_ptr<Device> device, uint64_t bytes) {
  EXPECT_TRUE(device->ReserveArena(bytes).ok());
  EXPECT_TRUE(device->ImportSlab(geminid::testing::MakeMemoryFile(bytes), 0, bytes).ok());
  return device;
}

TEST(HostDevice, PacedCopies_TakeAtLeastTheirTimeOnTheLink) {
  constexpr uint64_t kBytes = 1 << 20;
  constexpr int kCopies = 20;
  constexpr double kBytesPerSecond = 200 * (1 << 20);  // 20 copies: 100 ms
  const std::unique_ptr<Device> device = WithArena(MakeHostDevice({kBytesPerSecond, 0}), kBytes);
  std::vector<std::byte> memory(kBytes);
  std::vector<absl::Status> outcomes;
  const auto start = steady_clock::now();
  SubmitCopies(device.get(), &memory, kCopies, &outcomes);
  device->copy_stream(Direction::kHostToDevice).Synchronize();
  EXPECT_EQ(outcomes, std::vector<absl::Status>(kCopies));
  EXPECT_GE(steady_clock::now() - start, milliseconds(100));
}

TEST(HostDevice, ForkedChild_HasNoArena) {
  const std::unique_ptr<Device> device = WithArena(MakeHostDevice({}), 4096);
  const pid_t child = fork();
  if (child == 0) {
    // The arena has no mapping here, so the kernel refuses to read from it.
    int ends[2];
    if (pipe(ends) != 0) _exit(2);
    _exit(write(ends[1], device->base(), 1) == -1 && errno == EFAULT ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(StrictHostDeviceDeathTest, StrayAccessToTheArena_IsAFault) {
  // A forked child has no arena, so the child must make its own.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::unique_ptr<Device> device = WithArena(MakeHostDevice({.strict = true}), 8192);
  volatile std::byte* const stray = device->base() + 4096;
  EXPECT_EXIT((void)*stray, ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(*stray = std::byte{1}, ::testing::KilledBySignal(SIGSEGV), "");
  *device->HostAddress(device->base() + 4096) = std::byte{1};
}

TEST(FaultyDevice, NthCopy_FailsAloneAndInOrder) {
  FaultPlan plan;
  plan.point = FaultPoint::kCopy;
  plan.nth = 3;
  const auto device = WithArena(MakeFaultyDevice(MakeHostDevice({}), plan), 4096);
  std::vector<std::byte> memory(4096, std::byte{1});
  std::vector<absl::Status> outcomes;
  SubmitCopies(device.get(), &memory, 5, &outcomes);
  device->copy_stream(Direction::kHostToDevice).Synchronize();
  ASSERT_EQ(outcomes.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(outcomes[i].ok(), i != 2) << i;
}

TEST(FaultyDevice, NthImport_FailsWithTheGivenError) {
  FaultPlan plan;
  plan.point = FaultPoint::kImportSlab;
  plan.nth = 2;
  plan.error = absl::ResourceExhaustedError("no more");
  const auto device = WithArena(MakeFaultyDevice(MakeHostDevice({}), plan), 4096);
  EXPECT_EQ(device->ImportSlab(geminid::testing::MakeMemoryFile(4096), 0, 4096), plan.error);
}

TEST(FaultyDevice, DelayedCopy_HoldsWhatFollows) {
  FaultPlan plan;
  plan.point = FaultPoint::kCopy;
  plan.action = FaultAction::kDelay;
  plan.delay = absl::Milliseconds(30);
  const auto device = WithArena(MakeFaultyDevice(MakeHostDevice({}), plan), 4096);
  std::vector<std::byte> memory(4096);
  std::vector<absl::Status> outcomes;
  const auto start = steady_clock::now();
  SubmitCopies(device.get(), &memory, 2, &outcomes);
  device->copy_stream(Direction::kHostToDevice).Synchronize();
  EXPECT_EQ(outcomes, std::vector<absl::Status>(2));
  EXPECT_GE(steady_clock::now() - start, milliseconds(30));
}

TEST(FaultyDevice, KillAtTheNthCopy_EndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    FaultPlan plan;
    plan.point = FaultPoint::kCopy;
    plan.nth = 2;
    plan.action = FaultAction::kKill;
    const auto device = WithArena(MakeFaultyDevice(MakeHostDevice({}), plan), 4096);
    std::vector<std::byte> memory(4096);
    std::vector<absl::Status> outcomes;
    SubmitCopies(device.get(), &memory, 2, &outcomes);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

}  // namespace
}  // namespace geminid::device
