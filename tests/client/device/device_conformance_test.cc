// The contract of every device: one suite for all implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "client/device/host/host_device.h"
#include "tests/client/device/device_implementations.h"
#include "tests/client/device/faulty_device.h"
#include "tests/client/memory_files.h"

namespace geminid::device {
namespace {

class DeviceConformance : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override { device_ = GetParam().make(); }

  // An arena of two slabs.
  void MakeArena() {
    ASSERT_TRUE(device_->ReserveArena(2 * slab_).ok());
    ASSERT_TRUE(device_->ImportSlab(MakeSlab(slab_), 0, slab_).ok());
    ASSERT_TRUE(device_->ImportSlab(MakeSlab(slab_), slab_, slab_).ok());
  }
  static base::UniqueFd MakeSlab(uint64_t bytes) { return GetParam().make_slab(bytes); }

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

  const uint64_t page_ = GetParam().page_bytes;
  const uint64_t slab_ = 4 * page_;
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
  EXPECT_EQ(device_->memory_info().reserved_bytes, 2 * slab_);
  EXPECT_EQ(device_->memory_info().imported_bytes, 2 * slab_);
  std::vector<std::byte> read(2 * slab_, std::byte{1});
  ASSERT_TRUE(
      CopyAndWait(Direction::kDeviceToHost, read.data(), device_->base(), read.size()).ok());
  EXPECT_EQ(read, std::vector<std::byte>(2 * slab_));
}

TEST_P(DeviceConformance, BadArenas_AreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(device_->ReserveArena(0)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->ReserveArena(page_ + 1)));
  ASSERT_TRUE(device_->ReserveArena(slab_).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->ReserveArena(slab_)));
}

TEST_P(DeviceConformance, BadSlabs_AreRefused) {
  ASSERT_TRUE(device_->ReserveArena(2 * slab_).ok());
  const auto import = [&](base::UniqueFd slab, uint64_t offset, uint64_t bytes) {
    return device_->ImportSlab(std::move(slab), offset, bytes);
  };
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), 0, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), 1, slab_)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), 0, slab_ - 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), 2 * slab_, slab_)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), slab_ + page_, slab_)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), 0, ~uint64_t{0} - page_ + 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_ - page_), 0, slab_)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(import(geminid::testing::MakeMemoryFile(slab_, false), 0, slab_)));
  ASSERT_TRUE(import(MakeSlab(slab_), page_, slab_).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(slab_), 0, slab_)));
  EXPECT_TRUE(absl::IsInvalidArgument(import(MakeSlab(page_), slab_, page_)));
  EXPECT_TRUE(import(MakeSlab(page_), 0, page_).ok());
  EXPECT_EQ(device_->memory_info().imported_bytes, slab_ + page_);
}

TEST_P(DeviceConformance, ReleasedSlabs_LeaveTheAddressesToOthers) {
  MakeArena();
  std::byte* const base = device_->base();
  const std::vector<std::byte> sent = Pattern(slab_, 1);
  ASSERT_TRUE(CopyAndWait(Direction::kHostToDevice, base, sent.data(), slab_).ok());
  ASSERT_TRUE(device_->ReleaseSlabs().ok());
  EXPECT_EQ(device_->memory_info().imported_bytes, 0u);
  EXPECT_EQ(device_->base(), base);
  ASSERT_TRUE(device_->ImportSlab(MakeSlab(2 * slab_), 0, 2 * slab_).ok());
  std::vector<std::byte> back(slab_, std::byte{1});
  ASSERT_TRUE(CopyAndWait(Direction::kDeviceToHost, back.data(), base, slab_).ok());
  EXPECT_EQ(back, std::vector<std::byte>(slab_));
}

// The view covers both slabs, then another part. Copies find the same bytes at both addresses.
TEST_P(DeviceConformance, View_IsThePartOfTheArenaThatItWasMadeOf) {
  MakeArena();
  const absl::Status reserved = device_->ReserveViews(2 * slab_);
  if (absl::IsUnimplemented(reserved)) {
    EXPECT_EQ(device_->views(), nullptr);
    return;
  }
  ASSERT_TRUE(reserved.ok()) << reserved;
  const std::vector<std::byte> sent = Pattern(2 * slab_, 3);
  ASSERT_TRUE(
      CopyAndWait(Direction::kHostToDevice, device_->base(), sent.data(), sent.size()).ok());
  for (const uint64_t offset : {slab_ - page_, uint64_t{0}, slab_}) {
    ASSERT_TRUE(device_->MapView(page_, offset, 2 * page_).ok());
    std::byte* const view = device_->views() + page_;
    std::vector<std::byte> seen(2 * page_);
    ASSERT_TRUE(CopyAndWait(Direction::kDeviceToHost, seen.data(), view, seen.size()).ok());
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), sent.begin() + static_cast<long>(offset)));
    EXPECT_EQ(*device_->HostAddress(view), sent[offset]);
    *device_->HostAddress(view) = std::byte{77};
    EXPECT_EQ(*device_->HostAddress(device_->base() + offset), std::byte{77});
    *device_->HostAddress(view) = sent[offset];
  }
  EXPECT_TRUE(device_->UnmapView(page_, 2 * page_).ok());
  EXPECT_TRUE(device_->FillView(page_, 2 * page_).ok());
  EXPECT_EQ(*device_->HostAddress(device_->views() + page_), std::byte{0});
  EXPECT_TRUE(absl::IsInvalidArgument(device_->MapView(2 * slab_, 0, page_)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->MapView(0, 2 * slab_, page_)));
  device_->ReleaseViews();
  EXPECT_EQ(device_->views(), nullptr);
}

TEST_P(DeviceConformance, RoundTripsOfOddSizes_AreExact) {
  MakeArena();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{63}, uint64_t{4097}, 2 * slab_ - 7}) {
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
  const std::vector<std::byte> data = Pattern(slab_, 5);
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
  std::vector<std::byte> back(data.size());
  ASSERT_TRUE(
      CopyAndWait(Direction::kDeviceToHost, back.data(), device_->base(), back.size()).ok());
  EXPECT_EQ(back, data);
  device_->copy_stream(Direction::kHostToDevice).Synchronize();
  EXPECT_EQ(seen, 42u);
}

TEST_P(DeviceConformance, CopiesAndWorkOfOneStream_AreInOrder) {
  MakeArena();
  constexpr int kCopies = 200;
  const std::vector<std::byte> data = Pattern(page_, 1);
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
  const std::vector<std::byte> data = Pattern(slab_, 3);
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
  const std::vector<std::byte> data = Pattern(2 * slab_, 11);
  ASSERT_TRUE(
      CopyAndWait(Direction::kHostToDevice, device_->base(), data.data(), data.size()).ok());
  std::byte* const there = device_->HostAddress(device_->base());
  if (there != nullptr) {
    EXPECT_EQ(std::memcmp(there, data.data(), data.size()), 0);
    EXPECT_EQ(device_->HostAddress(device_->base() + slab_ + 5), there + slab_ + 5);
  } else {
    EXPECT_EQ(device_->HostAddress(device_->base() + slab_ + 5), nullptr);
  }
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

TEST_P(DeviceConformance, StreamOfTheCaller_HasDoneItsWorkOnceThatWasWaitedFor) {
  const auto stream = device_->MakeStreamOfCaller("geminid-test");
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) (*stream)->Enqueue([&order, i] { order.push_back(i); });
  ASSERT_EQ(device_->ops().Synchronize(**stream, absl::Seconds(20)), absl::OkStatus());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
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

TEST_P(DeviceConformance, StreamOf_FindsTheStreamAndTakesNone) {
  const StreamHandle handle = GetParam().make_handle(*device_);
  const auto found = device_->StreamOf(handle);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*device_->StreamOf(handle), *found);
  std::atomic<bool> release = false;
  device_->compute_stream().Enqueue([&] {
    while (!release.load()) std::this_thread::yield();
  });
  (*found)->WaitFor(device_->compute_stream().Record());
  const std::shared_ptr<const Event> end = (*found)->Record();
  EXPECT_FALSE(end->ready());
  release.store(true);
  end->Wait();
  // An empty handle is the default stream, or the calling thread (nullptr).
  const auto none = device_->StreamOf({});
  ASSERT_TRUE(none.ok()) << none.status();
  if (*none == nullptr) return;
  EXPECT_TRUE((*none)->Record()->WaitFor(absl::Minutes(1)));
}

TEST_P(DeviceConformance, RegisteredHostMemory_CanBeCopied) {
  MakeArena();
  std::vector<std::byte> memory = Pattern(3 * page_, 9);
  ASSERT_TRUE(device_->RegisterHost(std::span(memory)).ok());
  EXPECT_TRUE(
      CopyAndWait(Direction::kHostToDevice, device_->base(), memory.data(), memory.size()).ok());
  device_->UnregisterHost(std::span(memory));
}

INSTANTIATE_TEST_SUITE_P(
    Devices, DeviceConformance,
    ::testing::Values(
        OnHost("Host", {}), OnHost("PacedHost", {2e9, 20e-6}),
        OnHost("StrictHost", {.strict = true}),
        Implementation{"Faulty", [] { return MakeFaultyDevice(MakeHostDevice({}), FaultPlan{}); }},
        OnCuda(), OnCuda({.uuid = "", .completes_by_events = true}, "CudaByEvents")),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace geminid::device
