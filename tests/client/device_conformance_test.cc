// What every device must do: one suite, all implementations.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "client/device/faulty/faulty_device.h"
#include "client/device/host/host_device.h"
#include "tests/client/memory_files.h"

namespace geminid::device {
namespace {

using geminid::testing::MakeMemoryFile;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSlab = 16 * kPage;

struct Implementation {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

class DeviceConformance : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override { device_ = GetParam().make(); }

  // An arena of two slabs.
  void MakeArena() {
    ASSERT_TRUE(device_->ReserveArena(2 * kSlab).ok());
    ASSERT_TRUE(device_->ImportSlab(MakeMemoryFile(kSlab), 0, kSlab).ok());
    ASSERT_TRUE(device_->ImportSlab(MakeMemoryFile(kSlab), kSlab, kSlab).ok());
  }

  // Copies and waits; returns the status that on_done saw.
  absl::Status CopyAndWait(Direction direction, std::byte* destination, const std::byte* source,
                           uint64_t bytes) {
    absl::Status seen = absl::UnknownError("on_done was not called");
    Copy copy;
    copy.destination = destination;
    copy.source = source;
    copy.bytes = bytes;
    copy.on_done = [&](const absl::Status& status) { seen = status; };
    device_->copy_stream(direction).Submit(std::move(copy));
    device_->copy_stream(direction).Synchronize();
    return seen;
  }

  std::unique_ptr<Device> device_;
};

std::vector<std::byte> Pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::byte>((i * 2654435761u + seed * 97u) >> 7);
  }
  return pattern;
}

TEST_P(DeviceConformance, ArenaOfTwoSlabs_IsContiguousAndZero) {
  EXPECT_EQ(device_->base(), nullptr);
  MakeArena();
  EXPECT_EQ(device_->memory_info().reserved_bytes, 2 * kSlab);
  EXPECT_EQ(device_->memory_info().imported_bytes, 2 * kSlab);
  std::vector<std::byte> read(2 * kSlab, std::byte{1});
  ASSERT_TRUE(
      CopyAndWait(Direction::kDeviceToHost, read.data(), device_->base(), read.size()).ok());
  EXPECT_EQ(read, std::vector<std::byte>(2 * kSlab));
}

TEST_P(DeviceConformance, BadArenas_AreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(device_->ReserveArena(0)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->ReserveArena(kPage + 1)));
  ASSERT_TRUE(device_->ReserveArena(kSlab).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->ReserveArena(kSlab)));
}

TEST_P(DeviceConformance, BadSlabs_AreRefused) {
  ASSERT_TRUE(device_->ReserveArena(2 * kSlab).ok());
  const auto import = [&](base::UniqueFd slab, uint64_t offset, uint64_t bytes) {
    return device_->ImportSlab(std::move(slab), offset, bytes);
  };
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), 0, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), 1, kSlab)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), 0, kSlab - 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), 2 * kSlab, kSlab)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), kSlab + kPage, kSlab)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), 0, ~uint64_t{0} - kPage + 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab - kPage), 0, kSlab)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab, false), 0, kSlab)));
  ASSERT_TRUE(import(MakeMemoryFile(kSlab), kPage, kSlab).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kSlab), 0, kSlab)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeMemoryFile(kPage), kSlab, kPage)));
  EXPECT_TRUE(import(MakeMemoryFile(kPage), 0, kPage).ok());
  EXPECT_EQ(device_->memory_info().imported_bytes, kSlab + kPage);
}

TEST_P(DeviceConformance, ReleasedSlabs_LeaveTheAddressesToOthers) {
  MakeArena();
  std::byte* const base = device_->base();
  const std::vector<std::byte> sent = Pattern(kSlab, 1);
  ASSERT_TRUE(CopyAndWait(Direction::kHostToDevice, base, sent.data(), kSlab).ok());
  ASSERT_TRUE(device_->ReleaseSlabs().ok());
  EXPECT_EQ(device_->memory_info().imported_bytes, 0u);
  EXPECT_EQ(device_->base(), base);
  ASSERT_TRUE(device_->ImportSlab(MakeMemoryFile(2 * kSlab), 0, 2 * kSlab).ok());
  std::vector<std::byte> back(kSlab, std::byte{1});
  ASSERT_TRUE(CopyAndWait(Direction::kDeviceToHost, back.data(), base, kSlab).ok());
  EXPECT_EQ(back, std::vector<std::byte>(kSlab));
}

TEST_P(DeviceConformance, RoundTripsOfOddSizes_AreExact) {
  MakeArena();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{63}, uint64_t{4097}, 2 * kSlab - 7}) {
    const std::vector<std::byte> sent = Pattern(bytes, static_cast<unsigned>(bytes));
    std::byte* const at = device_->base() + 7;
    ASSERT_TRUE(CopyAndWait(Direction::kHostToDevice, at, sent.data(), bytes).ok());
    std::vector<std::byte> received(bytes);
    ASSERT_TRUE(CopyAndWait(Direction::kDeviceToHost, received.data(), at, bytes).ok());
    EXPECT_EQ(sent, received) << bytes;
  }
}

TEST_P(DeviceConformance, CompletionWord_IsWrittenBeforeOnDone) {
  MakeArena();
  const std::vector<std::byte> data = Pattern(kSlab, 5);
  std::atomic<uint64_t> word = 0;
  uint64_t seen = 0;
  Copy copy;
  copy.destination = device_->base();
  copy.source = data.data();
  copy.bytes = data.size();
  copy.completion = &word;
  copy.completion_value = 42;
  copy.on_done = [&](const absl::Status&) { seen = word.load(); };
  device_->copy_stream(Direction::kHostToDevice).Submit(std::move(copy));
  while (word.load(std::memory_order_acquire) != 42) std::this_thread::yield();
  EXPECT_EQ(std::memcmp(device_->HostAddress(device_->base()), data.data(), data.size()), 0);
  device_->copy_stream(Direction::kHostToDevice).Synchronize();
  EXPECT_EQ(seen, 42u);
}

TEST_P(DeviceConformance, CopiesAndWorkOfOneStream_AreInOrder) {
  MakeArena();
  constexpr int kCopies = 200;
  const std::vector<std::byte> data = Pattern(kPage, 1);
  std::vector<int> order;
  CopyStream& stream = device_->copy_stream(Direction::kHostToDevice);
  for (int i = 0; i < kCopies; ++i) {
    Copy copy;
    copy.destination = device_->base();
    copy.source = data.data();
    copy.bytes = static_cast<uint64_t>(1 + i % 7) * 100;
    copy.on_done = [&order, i](const absl::Status&) { order.push_back(2 * i); };
    stream.Submit(std::move(copy));
    stream.Enqueue([&order, i] { order.push_back(2 * i + 1); });
  }
  stream.Synchronize();
  std::vector<int> expected(2 * kCopies);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_P(DeviceConformance, WaitFor_HoldsOneStreamForAnother) {
  MakeArena();
  Stream& compute = device_->compute_stream();
  CopyStream& copies = device_->copy_stream(Direction::kDeviceToHost);
  std::atomic<bool> release = false;
  std::atomic<bool> computed = false;
  bool computed_first = false;
  compute.Enqueue([&] {
    while (!release.load()) std::this_thread::yield();
    computed.store(true);
  });
  copies.WaitFor(compute.Record());
  copies.Enqueue([&] { computed_first = computed.load(); });
  const std::shared_ptr<const Event> end = copies.Record();
  EXPECT_FALSE(end->ready());
  release.store(true);
  end->Wait();
  EXPECT_TRUE(end->ready());
  EXPECT_TRUE(computed_first);
}

TEST_P(DeviceConformance, BothDirections_GoOnIndependently) {
  MakeArena();
  std::atomic<bool> release = false;
  device_->copy_stream(Direction::kHostToDevice).Enqueue([&] {
    while (!release.load()) std::this_thread::yield();
  });
  std::byte received[8];
  EXPECT_TRUE(
      CopyAndWait(Direction::kDeviceToHost, received, device_->base(), sizeof received).ok());
  release.store(true);
  device_->copy_stream(Direction::kHostToDevice).Synchronize();
}

TEST_P(DeviceConformance, Destruction_CompletesWhatWasSubmitted) {
  MakeArena();
  const std::vector<std::byte> data = Pattern(kSlab, 3);
  std::atomic<int> done = 0;
  for (int i = 0; i < 50; ++i) {
    Copy copy;
    copy.destination = device_->base();
    copy.source = data.data();
    copy.bytes = data.size();
    copy.on_done = [&](const absl::Status& status) { done += status.ok() ? 1 : 0; };
    device_->copy_stream(Direction::kHostToDevice).Submit(std::move(copy));
  }
  device_.reset();
  EXPECT_EQ(done.load(), 50);
}

TEST_P(DeviceConformance, HostAddress_FindsTheArenaAndLeavesOtherAddressesAlone) {
  MakeArena();
  const std::vector<std::byte> data = Pattern(2 * kSlab, 11);
  ASSERT_TRUE(
      CopyAndWait(Direction::kHostToDevice, device_->base(), data.data(), data.size()).ok());
  std::byte* const there = device_->HostAddress(device_->base());
  EXPECT_EQ(std::memcmp(there, data.data(), data.size()), 0);
  EXPECT_EQ(device_->HostAddress(device_->base() + kSlab + 5), there + kSlab + 5);
  std::byte own{};
  EXPECT_EQ(device_->HostAddress(&own), &own);
  EXPECT_EQ(device_->HostAddress(nullptr), nullptr);
}

TEST_P(DeviceConformance, MadeStream_KeepsItsOrderAndWaitsForEventsOfOthers) {
  ASSERT_TRUE(device_->MakeStream("geminid-test").ok());
  const std::unique_ptr<Stream> stream = *device_->MakeStream("geminid-test");
  std::atomic<bool> release = false;
  device_->compute_stream().Enqueue([&] {
    while (!release.load()) std::this_thread::yield();
  });
  stream->WaitFor(device_->compute_stream().Record());
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream->Enqueue([&order, i] { order.push_back(i); });
  const std::shared_ptr<const Event> end = stream->Record();
  EXPECT_FALSE(end->WaitFor(absl::Milliseconds(1)));
  release.store(true);
  EXPECT_TRUE(end->WaitFor(absl::InfiniteDuration()));
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_P(DeviceConformance, Gate_HoldsStreamsUntilTheHostOpensIt) {
  MakeArena();
  const std::shared_ptr<Gate> gate = device_->MakeGate();
  EXPECT_FALSE(gate->ready());
  device_->compute_stream().WaitFor(gate);
  const std::shared_ptr<const Event> after = device_->compute_stream().Record();
  EXPECT_FALSE(after->WaitFor(absl::Milliseconds(1)));
  gate->Open();
  after->Wait();
  EXPECT_TRUE(gate->ready());
}

TEST_P(DeviceConformance, StreamOf_FindsTheStreamAndRefusesNone) {
  const auto found = device_->StreamOf({&device_->compute_stream()});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, &device_->compute_stream());
  EXPECT_TRUE(absl::IsInvalidArgument(device_->StreamOf({}).status()));
}

TEST_P(DeviceConformance, RegisteredHostMemory_CanBeCopied) {
  MakeArena();
  std::vector<std::byte> memory = Pattern(3 * kPage, 9);
  ASSERT_TRUE(device_->RegisterHost(std::span(memory)).ok());
  EXPECT_TRUE(
      CopyAndWait(Direction::kHostToDevice, device_->base(), memory.data(), memory.size()).ok());
  device_->UnregisterHost(std::span(memory));
}

INSTANTIATE_TEST_SUITE_P(
    Devices, DeviceConformance,
    ::testing::Values(
        Implementation{"Host", [] { return MakeHostDevice({}); }},
        Implementation{"PacedHost",
                       [] {
                         return MakeHostDevice({2e9, 20e-6});
                       }},
        Implementation{"StrictHost", [] { return MakeHostDevice({.strict = true}); }},
        Implementation{"Faulty", [] { return MakeFaultyDevice(MakeHostDevice({}), FaultPlan{}); }}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace geminid::device
