// Features of the double alone: errors on demand, several processes that share a GPU, and a name
// that is no real GPU's. Each test is a process of its own, because a driver's errors last as long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/driver_api.h"
#include "gpu/nvml_api.h"
#include "tests/gpu/double/node.h"

namespace geminid::gpu_double {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMemory = 64 * kMiB;

// The exit status of a forked child that did `work`: the number of expectations that failed in it.
int InChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// The double in this process, with a context of device 0.
class Gpu {
 public:
  Gpu() {
    std::string error;
    EXPECT_TRUE(gpu::LoadDriverApi(&api, &error)) << error;
    EXPECT_EQ(api.init(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
    EXPECT_EQ(api.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  CUresult Create(uint64_t bytes, CUmemGenericAllocationHandle* handle, int device = 0) const {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return api.mem_create(handle, bytes, &properties, 0);
  }
  CUdeviceptr Map(CUmemGenericAllocationHandle handle, uint64_t bytes,
                  CUmemAccess_flags flags) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(api.mem_address_reserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.mem_map(address, bytes, 0, handle, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = flags;
    EXPECT_EQ(api.mem_set_access(address, bytes, &access, 1), CUDA_SUCCESS);
    return address;
  }

  gpu::DriverApi api;
  CUstream stream = nullptr;
};

class DriverDouble : public ::testing::Test {
 protected:
  Node node_{{.devices = 2,
              .memory_bytes = kMemory,
              .libcuda = GEMINID_CUDA_DOUBLE,
              .libnvml = GEMINID_NVML_DOUBLE}};
};

TEST_F(DriverDouble, Log_SaysThatItIsNoGpu) {
  EXPECT_EQ(InChild([] {
              ::testing::internal::CaptureStderr();
              const Gpu gpu;
              EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                          ::testing::HasSubstr("this is not a GPU"));
              char name[64] = "";
              EXPECT_EQ(gpu.api.device_get_name(name, sizeof(name), 0), CUDA_SUCCESS);
              EXPECT_THAT(name, ::testing::HasSubstr("not a GPU"));
            }),
            0);
}

void ExpectAllOf(const gpu::DriverApi& api) {
#define GEMINID_EXPECT_THERE(member, name, parameters) EXPECT_NE(api.member, nullptr) << name;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_EXPECT_THERE)
  GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_EXPECT_THERE)
#undef GEMINID_EXPECT_THERE
}

TEST_F(DriverDouble, EveryFunctionOfTheTable_IsThere) {
  EXPECT_EQ(InChild([] { ExpectAllOf(Gpu().api); }), 0);
}

TEST_F(DriverDouble, OlderDriver_LacksWhatIsNewer) {
  node_.SetDriverVersion(12040);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              EXPECT_EQ(gpu.api.memcpy_batch_async, nullptr);
              EXPECT_NE(gpu.api.memcpy_async, nullptr);
            }),
            0);
}

TEST_F(DriverDouble, Capacity_IsSharedByProcessesAndComesBackWithTheLastDescriptor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const Gpu gpu;
    CUmemGenericAllocationHandle handle = 0;
    const bool made = gpu.Create(48 * kMiB, &handle) == CUDA_SUCCESS;
    if (write(ends[1], made ? "y" : "n", 1) != 1) _exit(1);
    pause();
  }
  char made = 0;
  ASSERT_EQ(read(ends[0], &made, 1), 1);
  EXPECT_EQ(made, 'y');
  EXPECT_EQ(node_.used_bytes(0), 48 * kMiB);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUmemGenericAllocationHandle handle = 0;
              EXPECT_EQ(gpu.Create(32 * kMiB, &handle), CUDA_ERROR_OUT_OF_MEMORY);
              EXPECT_EQ(gpu.Create(32 * kMiB, &handle, 1), CUDA_SUCCESS);  // the other GPU
              EXPECT_EQ(gpu.Create(16 * kMiB, &handle), CUDA_SUCCESS);
            }),
            0);
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_EQ(node_.used_bytes(0), 0u);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(DriverDouble, FreshMemory_HoldsWhatTheNodeSays) {
  node_.SetFreshByte(0xEE);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUmemGenericAllocationHandle handle = 0;
              ASSERT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_SUCCESS);
              const CUdeviceptr address =
                  gpu.Map(handle, 2 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
              uint32_t word = 0;
              EXPECT_EQ(gpu.api.memcpy_dtoh_async(&word, address, 4, gpu.stream), CUDA_SUCCESS);
              EXPECT_EQ(word, 0xEEEEEEEEu);
            }),
            0);
}

TEST_F(DriverDouble, WriteToAReadOnlyRange_IsAnErrorThatStays) {
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUmemGenericAllocationHandle handle = 0;
              ASSERT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_SUCCESS);
              const CUdeviceptr address = gpu.Map(handle, 2 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_READ);
              EXPECT_EQ(gpu.api.memset_d32_async(address, 1, 10, gpu.stream), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.stream_synchronize(gpu.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
              CUdeviceptr other = 0;
              EXPECT_EQ(gpu.api.mem_alloc(&other, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
              EXPECT_EQ(gpu.api.ctx_synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
            }),
            0);
}

TEST_F(DriverDouble, UnmappedRange_IsNotCopied) {
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUdeviceptr address = 0;
              uint32_t word = 0;
              ASSERT_EQ(gpu.api.mem_address_reserve(&address, 2 * kMiB, 0, 0, 0), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.memcpy_htod_async(address, &word, 4, gpu.stream),
                        CUDA_ERROR_INVALID_VALUE);
            }),
            0);
}

// The end of a range counts as its own, so no other memory may begin there.
TEST_F(DriverDouble, HostMemoryAsCloseBehindARangeAsCanBe_IsCopied) {
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUmemGenericAllocationHandle handle = 0;
              ASSERT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_SUCCESS);
              const CUdeviceptr address =
                  gpu.Map(handle, 2 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
              void* const wanted = reinterpret_cast<void*>(address + 2 * kMiB);
              void* const data = mmap(wanted, 4096, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              ASSERT_NE(data, MAP_FAILED);
              EXPECT_EQ(gpu.api.memcpy_htod_async(address, data, 4096, gpu.stream), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.memcpy_dtoh_async(data, address, 4096, gpu.stream), CUDA_SUCCESS);
            }),
            0);
}

TEST_F(DriverDouble, DriverCallInAHostFunction_IsNotPermitted) {
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              struct Data {
                const Gpu* gpu;
                CUresult result;
              } data = {&gpu, CUDA_SUCCESS};
              const auto call = [](void* user) {
                auto* const here = static_cast<Data*>(user);
                here->result = here->gpu->api.stream_query(here->gpu->stream);
              };
              EXPECT_EQ(gpu.api.launch_host_func(gpu.stream, call, &data), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.stream_synchronize(gpu.stream), CUDA_SUCCESS);
              EXPECT_EQ(data.result, CUDA_ERROR_NOT_PERMITTED);
            }),
            0);
}

TEST_F(DriverDouble, LostDevice_FailsEveryCallAndNvml) {
  EXPECT_EQ(InChild([&] {
              const Gpu gpu;
              gpu::NvmlApi nvml;
              std::string error;
              ASSERT_TRUE(gpu::LoadNvmlApi(&nvml, &error)) << error;
              ASSERT_EQ(nvml.init(), gpu::NvmlResult::kSuccess);
              gpu::NvmlDevice device = nullptr;
              ASSERT_EQ(nvml.device_get_handle_by_index(0, &device), gpu::NvmlResult::kSuccess);
              node_.Hold(0, true);
              CUdeviceptr address = 0;
              ASSERT_EQ(gpu.api.mem_alloc(&address, 4096), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.memset_d32_async(address, 1, 10, gpu.stream), CUDA_SUCCESS);
              node_.SetLost(0, true);
              EXPECT_EQ(gpu.api.stream_synchronize(gpu.stream), CUDA_ERROR_UNKNOWN);
              EXPECT_EQ(gpu.api.mem_alloc(&address, 4096), CUDA_ERROR_UNKNOWN);
              CUmemGenericAllocationHandle handle = 0;
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_ERROR_UNKNOWN);
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle, 1), CUDA_SUCCESS);
              gpu::NvmlMemory memory;
              EXPECT_EQ(nvml.device_get_memory_info(device, &memory), gpu::NvmlResult::kGpuIsLost);
            }),
            0);
}

TEST_F(DriverDouble, Fault_HitsTheCallsThatItNames) {
  node_.Fail("cuMemCreate", CUDA_ERROR_NOT_PERMITTED, /*skips=*/1, /*times=*/2);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUmemGenericAllocationHandle handle = 0;
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_SUCCESS);
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_ERROR_NOT_PERMITTED);
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_ERROR_NOT_PERMITTED);
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_SUCCESS);
            }),
            0);
  EXPECT_EQ(node_.calls("cuMemCreate"), 4u);
}

TEST_F(DriverDouble, HungCall_ReturnsWhenTheFaultIsTakenAway) {
  EXPECT_EQ(InChild([&] {
              const Gpu gpu;
              node_.Hang("cuMemAlloc");
              std::atomic<bool> returned = false;
              std::thread caller([&] {
                CUcontext context = nullptr;
                EXPECT_EQ(gpu.api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
                EXPECT_EQ(gpu.api.ctx_set_current(context), CUDA_SUCCESS);
                CUdeviceptr address = 0;
                EXPECT_EQ(gpu.api.mem_alloc(&address, 4096), CUDA_SUCCESS);
                returned = true;
              });
              while (node_.calls("cuMemAlloc") == 0) std::this_thread::yield();
              EXPECT_EQ(gpu.api.stream_query(gpu.stream), CUDA_SUCCESS);  // other calls continue
              EXPECT_FALSE(returned);
              node_.ClearFaults();
              caller.join();
              EXPECT_TRUE(returned);
            }),
            0);
}

TEST_F(DriverDouble, SlowLink_TakesItsTime) {
  node_.SetCopySpeed(0, /*bytes_per_second=*/100 * kMiB);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUdeviceptr address = 0;
              ASSERT_EQ(gpu.api.mem_alloc(&address, 4 * kMiB), CUDA_SUCCESS);
              const std::vector<char> data(4 * kMiB);
              const auto start = std::chrono::steady_clock::now();
              EXPECT_EQ(gpu.api.memcpy_htod_async(address, data.data(), data.size(), gpu.stream),
                        CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.stream_synchronize(gpu.stream), CUDA_SUCCESS);
              EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
            }),
            0);
}

TEST_F(DriverDouble, NoStreamMemoryOperations_IsSaidAndRefused) {
  node_.SetNoStreamMemoryOperations(true);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              int supported = 1;
              EXPECT_EQ(gpu.api.device_get_attribute(
                            &supported, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0),
                        CUDA_SUCCESS);
              EXPECT_EQ(supported, 0);
              CUdeviceptr address = 0;
              ASSERT_EQ(gpu.api.mem_alloc(&address, 4096), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.stream_write_value64(gpu.stream, address, 1, 0),
                        CUDA_ERROR_NOT_SUPPORTED);
            }),
            0);
}

TEST_F(DriverDouble, MemoryThatNeedsAContext_IsRefusedWithoutOne) {
  node_.SetCreateNeedsContext(true);
  EXPECT_EQ(InChild([] {
              const Gpu gpu;
              CUmemGenericAllocationHandle handle = 0;
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_SUCCESS);
              EXPECT_EQ(gpu.api.ctx_set_current(nullptr), CUDA_SUCCESS);
              EXPECT_EQ(gpu.Create(2 * kMiB, &handle), CUDA_ERROR_INVALID_CONTEXT);
            }),
            0);
}

TEST_F(DriverDouble, VisibleDevices_AreThoseThatTheVariableNames) {
  for (const auto& [value, first] : std::vector<std::pair<std::string, int>>{
           {"1,0", 1}, {UuidOf(1), 1}, {"0", 0}, {"0,7,1", 0}}) {
    setenv("CUDA_VISIBLE_DEVICES", value.c_str(), 1);
    EXPECT_EQ(InChild([&, first = first, value = value] {
                const Gpu gpu;
                int count = 0;
                EXPECT_EQ(gpu.api.device_get_count(&count), CUDA_SUCCESS);
                EXPECT_EQ(count, value == "1,0" ? 2 : 1);
                char id[32] = "";
                EXPECT_EQ(gpu.api.device_get_pci_bus_id(id, sizeof(id), 0), CUDA_SUCCESS);
                EXPECT_EQ(id, PciBusIdOf(first).substr(4));
              }),
              0)
        << value;
  }
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(InChild([] {
              gpu::DriverApi api;
              std::string error;
              ASSERT_TRUE(gpu::LoadDriverApi(&api, &error));
              EXPECT_EQ(api.init(0), CUDA_ERROR_NO_DEVICE);
            }),
            0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace geminid::gpu_double
