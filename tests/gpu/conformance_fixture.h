// The fixture of the driver's conformance cases. They hold for every driver: the double here, and a
// real one if there is a GPU (conformance_main.cc).
#ifndef GEMINID_TESTS_GPU_CONFORMANCE_FIXTURE_H_
#define GEMINID_TESTS_GPU_CONFORMANCE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/driver_api.h"

namespace geminid::gpu {

// The table of this process's driver, initialised; ends the process if there is no driver.
const DriverApi& TheDriver();

// A primary context of device 0 that is current in the test's thread, and a stream in it.
class DriverConformance : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static std::string NameOf(CUresult result);

  CUmemAllocationProp Properties() const;
  uint64_t Granularity() const;
  // Maps a range with access for reading and writing; Unmap removes it.
  CUdeviceptr MapWhole(CUmemGenericAllocationHandle handle, uint64_t bytes) const;
  void Unmap(CUdeviceptr address, uint64_t bytes) const;
  CUmemGenericAllocationHandle Create(uint64_t bytes) const;

  void Synchronize() const;
  std::vector<uint32_t> Read(CUdeviceptr address, size_t words) const;
  void Fill(CUdeviceptr address, uint32_t value, size_t words) const;

  const DriverApi& api_ = TheDriver();
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

#define EXPECT_CU(expected, call)                                                       \
  do {                                                                                  \
    const CUresult result_of_call = (call);                                             \
    EXPECT_EQ(result_of_call, (expected)) << #call << " is " << NameOf(result_of_call); \
  } while (false)
#define EXPECT_CU_OK(call) EXPECT_CU(CUDA_SUCCESS, call)
#define ASSERT_CU_OK(call)                                                                \
  do {                                                                                    \
    const CUresult result_of_call = (call);                                               \
    ASSERT_EQ(result_of_call, CUDA_SUCCESS) << #call << " is " << NameOf(result_of_call); \
  } while (false)

// Page-locked host memory.
class PinnedWords {
 public:
  PinnedWords(const DriverApi& api, size_t words) : api_(api) {
    void* data = nullptr;
    if (api_.mem_host_alloc(&data, words * sizeof(uint64_t), CU_MEMHOSTALLOC_DEVICEMAP) ==
        CUDA_SUCCESS) {
      data_ = static_cast<volatile uint64_t*>(data);
      for (size_t i = 0; i < words; ++i) data_[i] = 0;
    }
  }
  PinnedWords(const PinnedWords&) = delete;
  PinnedWords& operator=(const PinnedWords&) = delete;
  ~PinnedWords() { api_.mem_free_host(const_cast<uint64_t*>(data_)); }

  volatile uint64_t& operator[](size_t i) const { return data_[i]; }
  void* data() const { return const_cast<uint64_t*>(data_); }
  CUdeviceptr address() const {
    CUdeviceptr address = 0;
    EXPECT_EQ(api_.mem_host_get_device_pointer(&address, data(), 0), CUDA_SUCCESS);
    return address;
  }

 private:
  const DriverApi& api_;
  volatile uint64_t* data_ = nullptr;
};

}  // namespace geminid::gpu

#endif  // GEMINID_TESTS_GPU_CONFORMANCE_FIXTURE_H_
