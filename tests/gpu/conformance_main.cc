// geminid-driver-conformance [--real-driver] [gtest's flags]: the documented behaviour of the
// driver, entry point by entry point. Without --real-driver on the double, with it on the machine's
// driver.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/gpu/conformance_fixture.h"
#include "tests/gpu/double/node.h"

namespace geminid::gpu {
namespace {

// The environment variable by which child processes of death tests inherit --real-driver.
constexpr char kRealVariable[] = "GEMINID_CONFORMANCE_ON_REAL_DRIVER";

}  // namespace

const DriverApi& TheDriver() {
  std::string error;
  const DriverApi* const api = ProcessDriver(&error);
  if (api != nullptr) return *api;
  std::fprintf(stderr, "driver conformance: %s\n", error.c_str());
  std::exit(EXIT_FAILURE);
}

std::string DriverConformance::NameOf(CUresult result) {
  return DescribeError(TheDriver(), result);
}

void DriverConformance::SetUp() {
  ASSERT_CU_OK(api_.device_get(&device_, 0));
  ASSERT_CU_OK(api_.primary_ctx_retain(&context_, device_));
  ASSERT_CU_OK(api_.ctx_set_current(context_));
  ASSERT_CU_OK(api_.stream_create(&stream_, CU_STREAM_NON_BLOCKING));
}

void DriverConformance::TearDown() {
  EXPECT_CU_OK(api_.stream_destroy(stream_));
  EXPECT_CU_OK(api_.ctx_set_current(nullptr));
  EXPECT_CU_OK(api_.primary_ctx_release(device_));
}

CUmemAllocationProp DriverConformance::Properties() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  return properties;
}

uint64_t DriverConformance::Granularity() const {
  const CUmemAllocationProp properties = Properties();
  size_t bytes = 0;
  EXPECT_CU_OK(
      api_.mem_get_allocation_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return bytes;
}

CUmemGenericAllocationHandle DriverConformance::Create(uint64_t bytes) const {
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CU_OK(api_.mem_create(&handle, bytes, &properties, 0));
  return handle;
}

CUdeviceptr DriverConformance::MapWhole(CUmemGenericAllocationHandle handle, uint64_t bytes) const {
  CUdeviceptr address = 0;
  EXPECT_CU_OK(api_.mem_address_reserve(&address, bytes, 0, 0, 0));
  EXPECT_CU_OK(api_.mem_map(address, bytes, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = Properties().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_CU_OK(api_.mem_set_access(address, bytes, &access, 1));
  return address;
}

void DriverConformance::Unmap(CUdeviceptr address, uint64_t bytes) const {
  EXPECT_CU_OK(api_.mem_unmap(address, bytes));
  EXPECT_CU_OK(api_.mem_address_free(address, bytes));
}

void DriverConformance::Synchronize() const { EXPECT_CU_OK(api_.stream_synchronize(stream_)); }

std::vector<uint32_t> DriverConformance::Read(CUdeviceptr address, size_t words) const {
  std::vector<uint32_t> read(words);
  EXPECT_CU_OK(api_.memcpy_dtoh_async(read.data(), address, words * sizeof(uint32_t), stream_));
  Synchronize();
  return read;
}

void DriverConformance::Fill(CUdeviceptr address, uint32_t value, size_t words) const {
  EXPECT_CU_OK(api_.memset_d32_async(address, value, words, stream_));
  Synchronize();
}

}  // namespace geminid::gpu

int main(int argc, char** argv) {
  // Death tests start this program again, by argv[0], which lacks the folder if the shell found it.
  std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  argv[0] = self.data();
  ::testing::InitGoogleTest(&argc, argv);
  const bool is_real = argc > 1 && std::strcmp(argv[1], "--real-driver") == 0;
  if (is_real) setenv(geminid::gpu::kRealVariable, "1", 1);
  std::unique_ptr<geminid::gpu_double::Node> node;
  if (std::getenv(geminid::gpu::kRealVariable) == nullptr) {
    node = std::make_unique<geminid::gpu_double::Node>(
        geminid::gpu_double::NodeOptions{.devices = 2,
                                         .libcuda = GEMINID_CUDA_DOUBLE,
                                         .libnvml = GEMINID_NVML_DOUBLE,
                                         .libcublaslt = GEMINID_CUBLASLT_DOUBLE,
                                         .libcudnn = GEMINID_CUDNN_DOUBLE,
                                         .libnccl = GEMINID_NCCL_DOUBLE});
  }
  return RUN_ALL_TESTS();
}
