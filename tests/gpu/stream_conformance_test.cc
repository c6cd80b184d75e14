// Streams, events, copies and launches, as the driver's documentation says.
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/gpu/conformance_fixture.h"
#include "tools/gpu-verify/kernels.h"

namespace geminid::gpu {
namespace {

constexpr size_t kWords = 100000;
constexpr size_t kBytes = kWords * sizeof(uint32_t);

// Blocks a stream in a host function until it is released.
class Hold {
 public:
  Hold(const DriverApi& api, CUstream stream) {
    EXPECT_EQ(api.launch_host_func(stream, Wait, this), CUDA_SUCCESS);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    open_ = true;
    while (!left_) std::this_thread::yield();
  }

 private:
  static void Wait(void* data) {
    auto* const hold = static_cast<Hold*>(data);
    while (!hold->open_) std::this_thread::yield();
    hold->left_ = true;
  }
  std::atomic<bool> open_ = false;
  std::atomic<bool> left_ = false;
};

class StreamConformance : public DriverConformance {
 protected:
  void SetUp() override {
    DriverConformance::SetUp();
    ASSERT_CU_OK(api_.stream_create(&other_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU_OK(api_.mem_alloc(&first_, kBytes));
    ASSERT_CU_OK(api_.mem_alloc(&second_, kBytes));
  }
  void TearDown() override {
    EXPECT_CU_OK(api_.stream_destroy(other_));
    EXPECT_CU_OK(api_.mem_free(first_));
    EXPECT_CU_OK(api_.mem_free(second_));
    DriverConformance::TearDown();
  }
  CUevent MakeEvent(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    CUevent event = nullptr;
    EXPECT_CU_OK(api_.event_create(&event, flags));
    return event;
  }

  CUstream other_ = nullptr;
  CUdeviceptr first_ = 0;
  CUdeviceptr second_ = 0;
};

std::vector<uint32_t> Numbers() {
  std::vector<uint32_t> numbers(kWords);
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

TEST_F(StreamConformance, ContextsSynchronize_WaitsForAllStreams) {
  std::atomic<int> done = 0;
  const auto count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  for (CUstream stream : {stream_, other_}) {
    EXPECT_CU_OK(api_.memset_d32_async(stream == stream_ ? first_ : second_, 1, kWords, stream));
    EXPECT_CU_OK(api_.launch_host_func(stream, count, &done));
  }
  EXPECT_CU_OK(api_.ctx_synchronize());
  EXPECT_EQ(done, 2);
}

TEST_F(StreamConformance, CopiesUpAcrossAndDown_AreExact) {
  const std::vector<uint32_t> sent = Numbers();
  EXPECT_CU_OK(api_.memcpy_htod_async(first_, sent.data(), kBytes, stream_));
  EXPECT_CU_OK(api_.memcpy_dtod_async(second_, first_, kBytes, stream_));
  EXPECT_EQ(Read(second_, kWords), sent);
  EXPECT_CU_OK(api_.memset_d8_async(second_, 0xAB, kBytes, stream_));
  EXPECT_EQ(Read(second_, kWords), std::vector<uint32_t>(kWords, 0xABABABAB));
  std::vector<uint32_t> back(kWords);
  EXPECT_CU_OK(
      api_.memcpy_async(reinterpret_cast<uintptr_t>(back.data()), first_, kBytes, stream_));
  Synchronize();
  EXPECT_EQ(back, sent);
}

TEST_F(StreamConformance, CopiesOfNothing_AreDone) {
  EXPECT_CU_OK(api_.memcpy_dtod_async(second_, first_, 0, stream_));
  Synchronize();
}

TEST_F(StreamConformance, MisalignedWords_AreRefused) {
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.memset_d32_async(first_ + 1, 0, 1, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.stream_write_value64(stream_, first_ + 4, 1, 0));
}

TEST_F(StreamConformance, PageableSource_MayChangeAfterTheCall) {
  std::vector<uint32_t> words(1000, 3);
  {
    const Hold hold(api_, stream_);
    EXPECT_CU_OK(api_.memcpy_htod_async(first_, words.data(), 4000, stream_));
    words.assign(1000, 4);
  }
  EXPECT_EQ(Read(first_, 1000), std::vector<uint32_t>(1000, 3));
}

TEST_F(StreamConformance, CallsReturnWhileTheStreamIsHeld) {
  const PinnedWords words(api_, 1);
  {
    const Hold hold(api_, stream_);
    EXPECT_CU_OK(api_.memset_d32_async(first_, 5, kWords, stream_));
    EXPECT_CU_OK(api_.memcpy_dtoh_async(words.data(), first_, 8, stream_));
    EXPECT_CU(CUDA_ERROR_NOT_READY, api_.stream_query(stream_));
    EXPECT_CU_OK(api_.stream_query(other_));
    EXPECT_EQ(words[0], 0u);
  }
  Synchronize();
  EXPECT_CU_OK(api_.stream_query(stream_));
  EXPECT_EQ(words[0], 0x500000005u);
}

TEST_F(StreamConformance, WorkOfAStream_RunsInOrder) {
  struct Shared {
    std::vector<int> order;
  } shared;
  struct Step {
    Shared* shared;
    int number;
  };
  std::vector<Step> steps;
  for (int i = 0; i < 100; ++i) steps.push_back({&shared, i});
  for (Step& step : steps) {
    EXPECT_CU_OK(api_.launch_host_func(
        stream_,
        [](void* data) {
          auto* const taken = static_cast<Step*>(data);
          taken->shared->order.push_back(taken->number);
        },
        &step));
  }
  Synchronize();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(shared.order, expected);
}

TEST_F(StreamConformance, EventThatWasNotRecorded_IsDone) {
  const CUevent event = MakeEvent();
  EXPECT_CU_OK(api_.event_query(event));
  EXPECT_CU_OK(api_.event_synchronize(event));
  EXPECT_CU_OK(api_.stream_wait_event(stream_, event, 0));
  EXPECT_CU_OK(api_.event_destroy(event));
}

TEST_F(StreamConformance, WaitForAnEvent_HoldsTheOtherStream) {
  const CUevent event = MakeEvent();
  {
    const Hold hold(api_, stream_);
    EXPECT_CU_OK(api_.memset_d32_async(first_, 8, kWords, stream_));
    EXPECT_CU_OK(api_.event_record(event, stream_));
    EXPECT_CU_OK(api_.stream_wait_event(other_, event, 0));
    EXPECT_CU_OK(api_.memcpy_dtod_async(second_, first_, kBytes, other_));
    EXPECT_CU(CUDA_ERROR_NOT_READY, api_.event_query(event));
    EXPECT_CU(CUDA_ERROR_NOT_READY, api_.stream_query(other_));
  }
  EXPECT_CU_OK(api_.event_destroy(event));  // while a stream waits for it
  EXPECT_CU_OK(api_.stream_synchronize(other_));
  EXPECT_EQ(Read(second_, kWords), std::vector<uint32_t>(kWords, 8));
}

TEST_F(StreamConformance, RecordAgain_MovesTheEvent) {
  const CUevent event = MakeEvent();
  EXPECT_CU_OK(api_.event_record(event, stream_));
  EXPECT_CU_OK(api_.event_synchronize(event));
  EXPECT_CU_OK(api_.event_query(event));
  {
    const Hold hold(api_, stream_);
    EXPECT_CU_OK(api_.event_record(event, stream_));
    EXPECT_CU(CUDA_ERROR_NOT_READY, api_.event_query(event));
  }
  Synchronize();
  EXPECT_CU_OK(api_.event_destroy(event));
}

TEST_F(StreamConformance, ElapsedTime_IsOfTimingEventsThatAreReached) {
  const CUevent from = MakeEvent(CU_EVENT_DEFAULT);
  const CUevent to = MakeEvent(CU_EVENT_DEFAULT);
  const CUevent without = MakeEvent(CU_EVENT_DISABLE_TIMING);
  float milliseconds = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, api_.event_elapsed_time(&milliseconds, from, to));
  EXPECT_CU_OK(api_.event_record(from, stream_));
  EXPECT_CU_OK(api_.event_record(without, stream_));
  {
    const Hold hold(api_, stream_);
    EXPECT_CU_OK(api_.event_record(to, stream_));
    EXPECT_CU(CUDA_ERROR_NOT_READY, api_.event_elapsed_time(&milliseconds, from, to));
  }
  Synchronize();
  EXPECT_CU_OK(api_.event_elapsed_time(&milliseconds, from, to));
  EXPECT_GE(milliseconds, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, api_.event_elapsed_time(&milliseconds, from, without));
  for (const CUevent event : {from, to, without}) EXPECT_CU_OK(api_.event_destroy(event));
}

TEST_F(StreamConformance, WrittenWord_ComesAfterTheData) {
  const PinnedWords word(api_, 1);
  const PinnedWords data(api_, kWords / 2);
  EXPECT_CU_OK(api_.memset_d32_async(first_, 6, kWords, stream_));
  EXPECT_CU_OK(api_.memcpy_dtoh_async(data.data(), first_, kBytes, stream_));
  EXPECT_CU_OK(api_.stream_write_value64(stream_, word.address(), 42, 0));
  while (word[0] != 42) std::this_thread::yield();
  std::atomic_thread_fence(std::memory_order_acquire);
  EXPECT_EQ(data[0], 0x600000006u);
  EXPECT_EQ(data[kWords / 2 - 1], 0x600000006u);
}

TEST_F(StreamConformance, WaitForAWord_HoldsUntilItIsReached) {
  const PinnedWords word(api_, 1);
  EXPECT_CU_OK(api_.stream_wait_value64(stream_, word.address(), 3, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CU(CUDA_ERROR_NOT_READY, api_.stream_query(stream_));
  word[0] = 2;
  EXPECT_CU(CUDA_ERROR_NOT_READY, api_.stream_query(stream_));
  word[0] = 7;
  Synchronize();
}

TEST_F(StreamConformance, StreamThatIsDestroyed_FinishesItsWork) {
  const PinnedWords word(api_, 1);
  CUstream stream = nullptr;
  ASSERT_CU_OK(api_.stream_create(&stream, CU_STREAM_NON_BLOCKING));
  {
    const Hold hold(api_, stream);
    EXPECT_CU_OK(api_.stream_write_value64(stream, word.address(), 1, 0));
    EXPECT_CU_OK(api_.stream_destroy(stream));
    EXPECT_EQ(word[0], 0u);
  }
  while (word[0] != 1) std::this_thread::yield();
}

TEST_F(StreamConformance, LegacyStream_IsOrderedWithBlockingStreams) {
  CUstream blocking = nullptr;
  ASSERT_CU_OK(api_.stream_create(&blocking, CU_STREAM_DEFAULT));
  {
    const Hold hold(api_, blocking);
    EXPECT_CU_OK(api_.memset_d32_async(first_, 2, kWords, blocking));
    EXPECT_CU_OK(api_.memset_d32_async(first_, 3, kWords, nullptr));
    EXPECT_CU(CUDA_ERROR_NOT_READY, api_.stream_query(nullptr));
  }
  EXPECT_CU_OK(api_.memcpy_dtod_async(second_, first_, kBytes, blocking));
  EXPECT_CU_OK(api_.stream_synchronize(blocking));
  EXPECT_EQ(Read(second_, kWords), std::vector<uint32_t>(kWords, 3));
  EXPECT_CU_OK(api_.stream_destroy(blocking));
}

TEST_F(StreamConformance, BatchOfCopies_IsOneOperationOfTheStream) {
  if (api_.memcpy_batch_async == nullptr) GTEST_SKIP() << "the driver is older than CUDA 12.8";
  const PinnedWords source(api_, 100);
  const PinnedWords back(api_, 100);
  for (size_t i = 0; i < 100; ++i) source[i] = i * i;
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> bytes(100, 8);
  for (size_t i = 0; i < 100; ++i) {
    to.push_back(first_ + 8 * (99 - i));
    from.push_back(source.address() + 8 * i);
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0;
  size_t failed = 0;
  EXPECT_CU_OK(api_.memcpy_batch_async(to.data(), from.data(), bytes.data(), 100, &attributes,
                                       &first, 1, &failed, stream_));
  EXPECT_CU_OK(api_.memcpy_dtoh_async(back.data(), first_, 800, stream_));
  Synchronize();
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(back[i], (99 - i) * (99 - i));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            api_.memcpy_batch_async(to.data(), from.data(), bytes.data(), 100, &attributes, &first,
                                    1, &failed, nullptr));
}

TEST_F(StreamConformance, Kernels_AreFoundByNameAndComputeInOrder) {
  int major = 0;
  EXPECT_CU_OK(
      api_.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_));
  if (major < 8) GTEST_SKIP() << "the kernels need compute capability 8.0";
  const std::string text = gpu_verify::KernelText();
  CUlibrary library = nullptr;
  ASSERT_CU_OK(
      api_.library_load_data(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, api_.library_get_kernel(&kernel, library, "no such kernel"));
  ASSERT_CU_OK(api_.library_get_kernel(&kernel, library, "count"));
  CUmodule module = nullptr;
  ASSERT_CU_OK(api_.module_load_data(&module, text.c_str()));
  CUfunction copy = nullptr;
  ASSERT_CU_OK(api_.module_get_function(&copy, module, "copy"));

  const PinnedWords different(api_, 1);
  Fill(first_, 4, kWords);
  EXPECT_CU_OK(api_.memset_d32_async(first_, 5, 10, stream_));
  uint64_t units = kBytes / 16;
  void* copy_arguments[] = {&second_, &first_, &units};
  EXPECT_CU_OK(api_.launch_kernel(copy, 4, 1, 1, 256, 1, 1, 0, stream_, copy_arguments, nullptr));
  uint64_t words = kWords;
  uint32_t value = 4;
  CUdeviceptr out = different.address();
  void* arguments[] = {&second_, &words, &value, &out};
  EXPECT_CU_OK(api_.launch_kernel(reinterpret_cast<CUfunction>(kernel), 4, 1, 1, 256, 1, 1, 0,
                                  stream_, arguments, nullptr));
  Synchronize();
  EXPECT_EQ(different[0], 10u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            api_.launch_kernel(copy, 0, 1, 1, 256, 1, 1, 0, stream_, copy_arguments, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            api_.launch_kernel(copy, 1, 1, 1, 2048, 1, 1, 0, stream_, copy_arguments, nullptr));
}

TEST_F(StreamConformance, TextThatIsNoCode_IsNotLoaded) {
  CUmodule module = nullptr;
  EXPECT_NE(api_.module_load_data(&module, "this is no kernel"), CUDA_SUCCESS);
}

}  // namespace
}  // namespace geminid::gpu
