// Properties that only the device of a GPU has, on the driver's double.
#include "client/device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/device/cuda/cuda_stream.h"
#include "client/device/cuda/host_registry.h"
#include "gpu/driver_api.h"
#include "kernels/runtime/cuda/launcher.h"
#include "tests/client/device/device_implementations.h"

namespace geminid::device {
namespace {

using gpu_double::Node;
using gpu_double::UuidOf;

constexpr uint64_t kPage = uint64_t{2} << 20;
constexpr uint64_t kPiece = 64 << 10;

// A device with an arena of one page, and registered host memory of the same size.
class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaNode() == nullptr) GTEST_SKIP() << "needs the double";
    node_ = CudaNode();
    device_ = cuda_.make();
    ASSERT_NE(device_, nullptr);
    ASSERT_TRUE(device_->ReserveArena(kPage).ok());
    ASSERT_TRUE(device_->ImportSlab(cuda_.make_slab(kPage), 0, kPage).ok());
  }
  void TearDown() override {
    device_.reset();
    if (node_ != nullptr) node_->ClearFaults();
  }

  void Register(std::span<std::byte> memory) {
    const uint64_t before = node_->calls("cuMemHostRegister");
    ASSERT_TRUE(device_->RegisterHost(memory).ok());
    while (node_->calls("cuMemHostRegister") == before) std::this_thread::yield();
    // The call was made. Its result is known a moment later.
    std::atomic<uint64_t> word = 0;
    const uint64_t writes = node_->calls("cuStreamWriteValue64");
    while (node_->calls("cuStreamWriteValue64") == writes) {
      Copy copy = To(0, memory.data(), 8);
      copy.completion = reinterpret_cast<std::atomic<uint64_t>*>(memory.data());
      Submit(std::move(copy));
      stream().Synchronize();
    }
  }
  Copy To(uint64_t offset, const std::byte* source, uint64_t bytes) {
    Copy copy;
    copy.destination = device_->base() + offset;
    copy.source = source;
    copy.bytes = bytes;
    return copy;
  }
  void Submit(Copy copy) { stream().Submit(std::move(copy)); }
  CopyStream& stream() { return device_->copy_stream(Direction::kHostToDevice); }
  std::vector<std::byte> Arena(uint64_t bytes) {
    std::vector<std::byte> read(bytes);
    device_->ops().Copy(device_->compute_stream(), read.data(), device_->base(), bytes);
    EXPECT_TRUE(
        device_->ops().Synchronize(device_->compute_stream(), absl::InfiniteDuration()).ok());
    return read;
  }

  const Implementation cuda_ = OnCuda();
  Node* node_ = nullptr;
  std::unique_ptr<Device> device_;
};

TEST_F(CudaDevice, Gpu_IsFoundByItsUuid) {
  EXPECT_TRUE(MakeCudaDevice({UuidOf(0)}).ok());
  EXPECT_TRUE(MakeCudaDevice({UuidOf(0).substr(4)}).ok());  // in the daemon's form
  const absl::Status none = MakeCudaDevice({"GPU-00000000-0000-4000-8000-000000000000"}).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(
      std::string(none.message()),
      ::testing::HasSubstr("CUDA_VISIBLE_DEVICES=MIG-00000000-0000-4000-8000-000000000000"));
}

TEST_F(CudaDevice, GpuWhoseStreamsCannotWaitForWords_IsRefused) {
  node_->SetNoStreamMemoryOperations(true);
  const absl::Status refused = MakeCudaDevice({}).status();
  node_->SetNoStreamMemoryOperations(false);
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
}

TEST_F(CudaDevice, CompletionWordInRegisteredMemory_IsWrittenByTheGpu) {
  std::vector<std::byte> memory(kPage);
  Register(memory);
  auto* const word = reinterpret_cast<std::atomic<uint64_t>*>(memory.data() + kPage / 2);
  const uint64_t writes = node_->calls("cuStreamWriteValue64");
  Copy copy = To(0, memory.data(), 100);
  copy.completion = word;
  copy.completion_value = 42;
  Submit(std::move(copy));
  while (word->load(std::memory_order_acquire) != 42) std::this_thread::yield();
  EXPECT_EQ(node_->calls("cuStreamWriteValue64"), writes + 1);
  stream().Synchronize();
}

// For GPUs whose completion words become visible before the data.
TEST_F(CudaDevice, CompletionsByEvents_AreAllWrittenByTheStreamsThread) {
  std::vector<std::byte> memory(kPage);
  device_ = OnCuda({.uuid = "", .completes_by_events = true}).make();
  ASSERT_TRUE(device_->ReserveArena(kPage).ok());
  ASSERT_TRUE(device_->ImportSlab(cuda_.make_slab(kPage), 0, kPage).ok());
  const uint64_t pinned = node_->calls("cuMemHostRegister");
  ASSERT_TRUE(device_->RegisterHost(memory).ok());
  while (node_->calls("cuMemHostRegister") == pinned) std::this_thread::yield();
  auto* const word = reinterpret_cast<std::atomic<uint64_t>*>(memory.data() + kPage / 2);
  const uint64_t writes = node_->calls("cuStreamWriteValue64");
  for (uint64_t value = 1; value <= 100; ++value) {
    // Small copies go as a batch, large copies alone.
    Copy copy = To(0, memory.data(), value % 2 == 0 ? 100 : kPage / 2);
    copy.completion = word;
    copy.completion_value = value;
    Submit(std::move(copy));
    while (word->load(std::memory_order_acquire) != value) std::this_thread::yield();
  }
  EXPECT_EQ(node_->calls("cuStreamWriteValue64"), writes);
  stream().Synchronize();
}

TEST_F(CudaDevice, CompletionWordElsewhere_IsWrittenByTheStreamsThread) {
  std::atomic<uint64_t> word = 0;
  const std::vector<std::byte> data(100);
  const uint64_t writes = node_->calls("cuStreamWriteValue64");
  Copy copy = To(0, data.data(), data.size());
  copy.completion = &word;
  copy.completion_value = 7;
  Submit(std::move(copy));
  stream().Synchronize();
  EXPECT_EQ(word.load(), 7u);
  EXPECT_EQ(node_->calls("cuStreamWriteValue64"), writes);
}

// Memory of the GPU that other code in this process has allocated.
class ForeignMemory {
 public:
  ForeignMemory(Device* device, uint64_t bytes) : device_(*device) {
    std::string error;
    api_ = gpu::ProcessDriver(&error);
    CUdevice gpu = 0;
    EXPECT_EQ(api_->device_get(&gpu, 0), CUDA_SUCCESS);
    EXPECT_EQ(api_->primary_ctx_retain(&context_, gpu), CUDA_SUCCESS);
    EXPECT_EQ(api_->ctx_set_current(context_), CUDA_SUCCESS);
    EXPECT_EQ(api_->mem_alloc(&address_, bytes), CUDA_SUCCESS);
  }
  ~ForeignMemory() {
    EXPECT_EQ(api_->mem_free(address_), CUDA_SUCCESS);
    EXPECT_EQ(api_->primary_ctx_release(0), CUDA_SUCCESS);
    api_->ctx_set_current(nullptr);
  }
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  void Write(const std::vector<float>& values) {
    device_.ops().Copy(device_.compute_stream(), data(),
                       reinterpret_cast<const std::byte*>(values.data()), values.size() * 4);
    Finish();
  }
  std::vector<float> Read(const std::byte* from, size_t count) {
    std::vector<float> values(count);
    device_.ops().Copy(device_.compute_stream(), reinterpret_cast<std::byte*>(values.data()), from,
                       count * 4);
    Finish();
    return values;
  }

 private:
  void Finish() {
    EXPECT_TRUE(
        device_.ops().Synchronize(device_.compute_stream(), absl::InfiniteDuration()).ok());
  }

  Device& device_;
  const gpu::DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
};

// For example a gradient of a framework with its own allocator.
TEST_F(CudaDevice, MemoryOfTheGpuOutsideOfTheArena_IsReadAndWrittenInPlace) {
  ForeignMemory foreign(device_.get(), 4096);
  const std::vector<float> values = {1, 2, 3, 4};
  foreign.Write(values);
  const Elements from = {foreign.data(), 4, collectives::DType::kFloat32};
  const uint64_t to_host = node_->bytes_to_host(0);
  Stream& stream = device_->compute_stream();
  device_->ops().Assign(stream, from, device_->base(), collectives::DType::kFloat32);
  device_->ops().Add(stream, from, device_->base(), collectives::DType::kFloat32);
  device_->ops().Copy(stream, foreign.data() + 1024, device_->base(), 16);
  device_->ops().Zero(stream, foreign.data(), 8);
  stream.Synchronize();
  EXPECT_EQ(node_->bytes_to_host(0), to_host);
  EXPECT_THAT(foreign.Read(device_->base(), 4), ::testing::ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(foreign.Read(foreign.data() + 1024, 4), ::testing::ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(foreign.Read(foreign.data(), 4), ::testing::ElementsAre(0, 0, 3, 4));
  EXPECT_TRUE(device_->ops().status().ok()) << device_->ops().status();
}

TEST_F(CudaDevice, Callbacks_DoNotStopTheGpu) {
  std::atomic<bool> release = false;
  std::atomic<int> called = 0;
  const uint64_t waits = node_->calls("cuStreamWaitValue64");
  stream().CallBack([&] {
    while (!release.load()) std::this_thread::yield();
    ++called;
  });
  EXPECT_EQ(node_->calls("cuStreamWaitValue64"), waits);
  EXPECT_EQ(called.load(), 0);
  release.store(true);
  stream().Synchronize();
  EXPECT_EQ(called.load(), 1);
  stream().Enqueue([] {});
  EXPECT_EQ(node_->calls("cuStreamWaitValue64"), waits + 1);
  stream().Synchronize();
}

TEST_F(CudaDevice, SmallCopies_GoAsOneBatch) {
  std::vector<std::byte> memory(kPage);
  Register(memory);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / 64);
  std::atomic<bool> started = false;
  std::atomic<bool> release = false;
  int done = 0;
  stream().Enqueue([&] {  // keeps the stream's thread from sending the first copies alone
    started.store(true);
    while (!release.load()) std::this_thread::yield();
  });
  while (!started.load()) std::this_thread::yield();
  const uint64_t batches = node_->calls("cuMemcpyBatchAsync");
  const uint64_t copies = node_->calls("cuMemcpyHtoDAsync");
  for (uint64_t i = 0; i < 20; ++i) {
    Copy copy = To((19 - i) * 64, &memory[i * 64], 64);
    copy.on_done = [&](const absl::Status& status) { done += status.ok() ? 1 : 0; };
    Submit(std::move(copy));
  }
  const std::shared_ptr<const Event> end = stream().Record();
  EXPECT_EQ(node_->calls("cuMemcpyBatchAsync"), batches + 1);
  EXPECT_EQ(node_->calls("cuMemcpyHtoDAsync"), copies);
  release.store(true);
  end->Wait();
  EXPECT_EQ(done, 20);
  const std::vector<std::byte> arena = Arena(20 * 64);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(arena[(19 - i) * 64], static_cast<std::byte>(i));
}

TEST_F(CudaDevice, SmallCopiesToOnePlace_KeepTheirOrder) {
  std::vector<std::byte> memory(kPage);
  Register(memory);
  for (size_t i = 0; i < 100; ++i) memory[i * 64] = static_cast<std::byte>(i);
  for (uint64_t i = 0; i < 100; ++i) Submit(To(0, &memory[i * 64], 64));
  stream().Synchronize();
  EXPECT_EQ(Arena(1)[0], std::byte{99});
}

TEST_F(CudaDevice, CopyThatFindsNoStaging_FailsAloneAndTheStreamGoesOn) {
  const std::vector<std::byte> data(1000, std::byte{5});
  node_->Fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<absl::Status> outcomes;
  for (int i = 0; i < 2; ++i) {
    Copy copy = To(0, data.data(), data.size());
    copy.on_done = [&](const absl::Status& status) { outcomes.push_back(status); };
    Submit(std::move(copy));
  }
  stream().Synchronize();
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_TRUE(absl::IsResourceExhausted(outcomes[0])) << outcomes[0];
  EXPECT_TRUE(outcomes[1].ok()) << outcomes[1];
  EXPECT_TRUE(device_->ops().status().ok());
}

TEST_F(CudaDevice, HungCopyCall_HoldsItsStreamAlone) {
  std::vector<std::byte> memory(kPage);
  Register(memory);
  node_->Hang("cuMemcpyHtoDAsync");
  std::thread caller([&] { Submit(To(0, memory.data(), kPage)); });
  std::atomic<bool> worked = false;
  device_->compute_stream().Enqueue([&] { worked = true; });
  device_->compute_stream().Synchronize();
  EXPECT_TRUE(worked);
  node_->ClearFaults();
  caller.join();
  stream().Synchronize();
}

TEST_F(CudaDevice, ArithmeticInTheArena_IsTheGpus) {
  if (!kernels::cuda::HasKernelImages()) GTEST_SKIP() << "built without a CUDA compiler";
  const uint64_t launches = node_->calls("cuLaunchKernel");
  const uint64_t copies = node_->calls("cuMemcpyDtoHAsync");
  const Elements first = {device_->base(), 1000, collectives::DType::kFloat32};
  double sum = -1;
  device_->ops().Add(device_->compute_stream(), first, device_->base() + 8192,
                     collectives::DType::kFloat32);
  device_->ops().SumSquares(device_->compute_stream(), first, &sum);
  EXPECT_TRUE(device_->ops().Synchronize(device_->compute_stream(), absl::InfiniteDuration()).ok());
  EXPECT_GE(node_->calls("cuLaunchKernel"), launches + 2);
  EXPECT_EQ(node_->calls("cuMemcpyDtoHAsync"), copies);
  EXPECT_EQ(sum, 0);
}

// A lost device stays lost for its process, so each case runs in a process of its own.
int LoseTheDevice() {
  const Implementation cuda = OnCuda();
  const std::unique_ptr<Device> device = cuda.make();
  if (!device->ReserveArena(kPage).ok() ||
      !device->ImportSlab(cuda.make_slab(kPage), 0, kPage).ok()) {
    return 1;
  }
  CudaNode()->Hold(0, true);
  const std::vector<std::byte> data(kPage);
  absl::Status seen;
  bool worked = false;
  Copy copy;
  copy.destination = device->base();
  copy.source = data.data();
  copy.bytes = data.size();
  copy.on_done = [&](const absl::Status& status) { seen = status; };
  CopyStream& stream = device->copy_stream(Direction::kHostToDevice);
  stream.Submit(std::move(copy));
  stream.Enqueue([&] { worked = true; });
  const std::shared_ptr<Gate> gate = device->MakeGate();
  device->compute_stream().WaitFor(gate);
  CudaNode()->SetLost(0, true);
  stream.Synchronize();
  device->compute_stream().Synchronize();  // its gate stays closed
  const absl::Status status =
      device->ops().Synchronize(device->compute_stream(), absl::InfiniteDuration());
  if (!absl::IsDataLoss(seen)) return 2;
  if (!worked) return 3;  // other work waits for work of the host
  return absl::IsDataLoss(status) ? 0 : 4;
}

TEST(CudaDeviceDeathTest, LostDevice_EndsEveryWaitWithAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (CudaNode() == nullptr) GTEST_SKIP() << "needs the double";
  EXPECT_EXIT(_exit(LoseTheDevice()), ::testing::ExitedWithCode(0), "");
}

TEST(CudaDeviceDeathTest, StrayAccessToTheArena_IsAFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Implementation cuda = OnCuda();
        const std::unique_ptr<Device> device = cuda.make();
        if (!device->ReserveArena(kPage).ok() ||
            !device->ImportSlab(cuda.make_slab(kPage), 0, kPage).ok()) {
          _exit(1);
        }
        *static_cast<volatile std::byte*>(device->base()) = std::byte{1};
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

// --- the registration of host memory -------------------------------------------------------------

class HostRegistryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaNode() == nullptr) GTEST_SKIP() << "needs the double";
    context_ = *CudaContext::Create("");
  }
  void TearDown() override {
    if (CudaNode() != nullptr) CudaNode()->ClearFaults();
  }
  static void Await(const HostRegistry& registry, uint64_t bytes) {
    while (registry.totals().registered_bytes + registry.totals().refused_bytes < bytes) {
      std::this_thread::yield();
    }
  }

  std::shared_ptr<CudaContext> context_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 * kPiece);
};

TEST_F(HostRegistryTest, Memory_IsRegisteredInPiecesInTheBackground) {
  HostRegistry registry(context_, kPiece);
  CudaNode()->Hang("cuMemHostRegister");
  ASSERT_TRUE(registry.Add(std::span(memory_).first(3 * kPiece + 100)).ok());
  EXPECT_EQ(registry.totals().given_bytes, 3 * kPiece + 100);
  EXPECT_EQ(registry.totals().registered_bytes, 0u);
  EXPECT_FALSE(registry.Find(memory_.data(), 1).registered);
  CudaNode()->ClearFaults();
  Await(registry, 3 * kPiece + 100);
  EXPECT_EQ(registry.totals().registered_bytes, 3 * kPiece + 100);
  const auto [bytes, registered] = registry.Find(&memory_[kPiece - 10], 100);
  EXPECT_TRUE(registered);
  EXPECT_EQ(bytes, 10u);  // to the end of its piece
  EXPECT_FALSE(registry.Find(&memory_[3 * kPiece + 100], 10).registered);
  EXPECT_TRUE(absl::IsInvalidArgument(registry.Add(std::span(memory_).subspan(kPiece, 5))));
  registry.Remove(std::span(memory_).first(3 * kPiece + 100));
  EXPECT_EQ(registry.totals().given_bytes, 0u);
  EXPECT_FALSE(registry.Find(memory_.data(), 1).registered);
}

TEST_F(HostRegistryTest, Observer_IsToldOfEachPiece) {
  std::mutex mutex;
  std::vector<HostRegistrationCounts> told;
  HostRegistry registry(context_, kPiece, [&](const HostRegistrationCounts& now) {
    const std::lock_guard lock(mutex);
    told.push_back(now);
  });
  CudaNode()->Fail("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, /*skips=*/1);
  ASSERT_TRUE(registry.Add(std::span(memory_).first(2 * kPiece + 1)).ok());
  Await(registry, 2 * kPiece + 1);
  registry.Remove(std::span(memory_).first(2 * kPiece + 1));
  const std::lock_guard lock(mutex);
  ASSERT_EQ(told.size(), 5u);
  EXPECT_EQ(told[0].given, 3u);
  EXPECT_EQ(told[0].registered + told[0].refused, 0u);
  EXPECT_EQ(told[3].given_bytes, 2 * kPiece + 1);
  EXPECT_EQ(told[3].registered, 2u);
  EXPECT_EQ(told[3].registered_bytes, kPiece + 1);
  EXPECT_EQ(told[3].refused, 1u);
  EXPECT_EQ(told[3].refused_bytes, kPiece);
  EXPECT_EQ(told[4].given + told[4].registered + told[4].refused, 0u);
  EXPECT_EQ(told[4].given_bytes + told[4].registered_bytes + told[4].refused_bytes, 0u);
}

TEST_F(HostRegistryTest, PieceThatACopyAsksFor_GoesFirst) {
  HostRegistry registry(context_, kPiece);
  const uint64_t calls = CudaNode()->calls("cuMemHostRegister");
  // The second call is refused. The error shows for which piece it was.
  CudaNode()->Fail("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, /*skips=*/1);
  CudaNode()->Hang("cuMemHostRegister");
  ASSERT_TRUE(registry.Add(memory_).ok());
  while (CudaNode()->calls("cuMemHostRegister") == calls) std::this_thread::yield();
  EXPECT_FALSE(registry.Find(&memory_[3 * kPiece], 1).registered);
  CudaNode()->EndHang("cuMemHostRegister");
  Await(registry, 4 * kPiece);
  EXPECT_EQ(registry.totals().refused_bytes, kPiece);
  EXPECT_TRUE(absl::IsResourceExhausted(registry.status())) << registry.status();
  EXPECT_FALSE(registry.Find(&memory_[3 * kPiece], 1).registered);
  for (uint64_t piece = 0; piece < 3; ++piece) {
    EXPECT_TRUE(registry.Find(&memory_[piece * kPiece], 1).registered) << piece;
  }
}

}  // namespace
}  // namespace geminid::device
