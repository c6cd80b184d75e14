// The behaviour of NCCL that the project relies on and one GPU can show: on the double or, with
// --real-driver, on the machine's own library. tests/collectives checks several ranks.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/nccl_api.h"
#include "tests/gpu/conformance_fixture.h"

namespace geminid::gpu {
namespace {

constexpr uint64_t kBytes = uint64_t{4} << 20;
constexpr size_t kWords = 1000;
constexpr size_t kWordBytes = kWords * sizeof(uint32_t);

#define EXPECT_NCCL_OK(call) \
  EXPECT_EQ(Done(call), NcclResult::kSuccess) << #call << ": " << nccl_.last_error(comm_)

// A communicator of one rank, and memory that was exported and imported, like a session's.
class NcclConformance : public DriverConformance {
 protected:
  void SetUp() override {
    DriverConformance::SetUp();
    std::string error;
    if (!LoadNcclApi(&nccl_, &error)) GTEST_SKIP() << error;
    NcclId id = {};
    ASSERT_EQ(nccl_.get_unique_id(&id), NcclResult::kSuccess);
    NcclConfig config;
    const NcclResult begun = nccl_.comm_init(&comm_, 1, id, 0, &config);
    ASSERT_EQ(Done(begun), NcclResult::kSuccess) << nccl_.error_string(begun);
    made_ = Create(kBytes);
    int fd = -1;
    ASSERT_CU_OK(api_.mem_export(&fd, made_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASSERT_CU_OK(api_.mem_import(&memory_, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)),
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    base_ = MapWhole(memory_, kBytes);
  }
  void TearDown() override {
    if (comm_ != nullptr) {
      EXPECT_NCCL_OK(nccl_.comm_finalize(comm_));
      EXPECT_EQ(nccl_.comm_destroy(comm_), NcclResult::kSuccess);
    }
    if (base_ != 0) {
      Unmap(base_, kBytes);
      EXPECT_CU_OK(api_.mem_release(memory_));
      EXPECT_CU_OK(api_.mem_release(made_));
    }
    DriverConformance::TearDown();
  }

  // The result of a call of a communicator that does not block.
  NcclResult Done(NcclResult result) const {
    while (result == NcclResult::kInProgress) {
      std::this_thread::yield();
      if (nccl_.comm_async_error(comm_, &result) != NcclResult::kSuccess) break;
    }
    return result;
  }
  void* At(uint64_t offset) const { return reinterpret_cast<void*>(base_ + offset); }
  // Checks that `move` copies kWords words from the beginning to `to`.
  void ExpectMoved(uint64_t to, uint32_t value, const std::function<NcclResult()>& move) {
    Fill(base_, value, kWords);
    Fill(base_ + to, 0, kWords);
    EXPECT_NCCL_OK(move());
    Synchronize();
    EXPECT_EQ(Read(base_ + to, kWords), std::vector<uint32_t>(kWords, value));
  }

  NcclApi nccl_;
  NcclComm comm_ = nullptr;
  CUmemGenericAllocationHandle made_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  CUdeviceptr base_ = 0;
};

TEST_F(NcclConformance, ImportedMemory_IsGatheredBroadcastAndSent) {
  constexpr uint64_t kTo = kBytes / 2;
  ExpectMoved(kTo, 7, [&] {
    return nccl_.all_gather(At(0), At(kTo), kWordBytes, NcclType::kUint8, comm_, stream_);
  });
  ExpectMoved(kTo, 8, [&] {
    return nccl_.broadcast(At(0), At(kTo), kWordBytes, NcclType::kUint8, 0, comm_, stream_);
  });
  ExpectMoved(kTo, 9, [&] {
    EXPECT_EQ(nccl_.group_start(), NcclResult::kSuccess);
    nccl_.send(At(0), kWordBytes, NcclType::kUint8, 0, comm_, stream_);
    nccl_.receive(At(kTo), kWordBytes, NcclType::kUint8, 0, comm_, stream_);
    return nccl_.group_end();
  });
}

TEST_F(NcclConformance, AbortedCommunicator_IsGoneAndALaterOneWorks) {
  int version = 0;
  EXPECT_EQ(nccl_.get_version(&version), NcclResult::kSuccess);
  EXPECT_GT(version, 0);
  EXPECT_EQ(nccl_.comm_abort(comm_), NcclResult::kSuccess);
  comm_ = nullptr;
  NcclId id = {};
  ASSERT_EQ(nccl_.get_unique_id(&id), NcclResult::kSuccess);
  NcclConfig config;
  EXPECT_NCCL_OK(nccl_.comm_init(&comm_, 1, id, 0, &config));
  ExpectMoved(kBytes / 2, 10, [&] {
    return nccl_.all_gather(At(0), At(kBytes / 2), kWordBytes, NcclType::kUint8, comm_, stream_);
  });
}

TEST_F(NcclConformance, RegisteredMemory_IsMovedAndGivenBack) {
  if (nccl_.comm_register == nullptr) GTEST_SKIP() << "this NCCL registers nothing";
  constexpr uint64_t kTo = kBytes / 2;
  void* handle = nullptr;
  EXPECT_NCCL_OK(nccl_.comm_register(comm_, At(0), kBytes, &handle));
  ExpectMoved(kTo, 11, [&] {
    return nccl_.all_gather(At(0), At(kTo), kWordBytes, NcclType::kUint8, comm_, stream_);
  });
  if (handle == nullptr) GTEST_SKIP() << "NCCL_LOCAL_REGISTER is 0";
  EXPECT_NCCL_OK(nccl_.comm_deregister(comm_, handle));
  ExpectMoved(kTo, 12, [&] {
    return nccl_.all_gather(At(0), At(kTo), kWordBytes, NcclType::kUint8, comm_, stream_);
  });
}

TEST_F(NcclConformance, HandleThatIsNoneAnyMore_IsRefused) {
  if (nccl_.comm_register == nullptr) GTEST_SKIP() << "this NCCL registers nothing";
  void* handle = nullptr;
  EXPECT_NCCL_OK(nccl_.comm_register(comm_, At(0), kBytes, &handle));
  if (handle == nullptr) GTEST_SKIP() << "NCCL_LOCAL_REGISTER is 0";
  EXPECT_NCCL_OK(nccl_.comm_deregister(comm_, handle));
  EXPECT_EQ(nccl_.comm_deregister(comm_, handle), NcclResult::kInvalidUsage);
}

}  // namespace
}  // namespace geminid::gpu
