// Devices, contexts and memory, as the driver's documentation says.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gpu/nvml_api.h"
#include "tests/gpu/conformance_fixture.h"

namespace geminid::gpu {
namespace {

constexpr size_t kWords = 1000;
constexpr uint64_t kTooManyBytes = uint64_t{1} << 46;  // 64 TiB

TEST(DriverInitDeathTest, CallsBeforeInit_AreNotInitialized) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that starts anew
  EXPECT_EXIT(
      {
        DriverApi api;
        std::string error;
        int count = 0;
        const bool loaded = LoadDriverApi(&api, &error);
        _exit(loaded && api.device_get_count(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(DriverConformance, Init_TakesNoFlagsAndMayBeRepeated) {
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.init(1));
  EXPECT_CU_OK(api_.init(0));
}

TEST_F(DriverConformance, ForkedChild_HasNoDriver) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(api_.device_get_count(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(DriverConformance, Errors_HaveNamesAndWords) {
  const char* text = nullptr;
  EXPECT_CU_OK(api_.get_error_name(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_CU_OK(api_.get_error_string(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.get_error_name(static_cast<CUresult>(77777), &text));
  EXPECT_EQ(text, nullptr);
}

TEST_F(DriverConformance, Devices_AreCountedFromZero) {
  int count = 0;
  EXPECT_CU_OK(api_.device_get_count(&count));
  ASSERT_GE(count, 1);
  CUdevice device = -1;
  EXPECT_CU_OK(api_.device_get(&device, count - 1));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, api_.device_get(&device, count));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, api_.device_get(&device, -1));
  int version = 0;
  EXPECT_CU_OK(api_.driver_get_version(&version));
  EXPECT_GE(version, 12000);
}

TEST_F(DriverConformance, Device_DescribesItselfAsNvmlDoes) {
  char name[kNvmlTextBytes] = "";
  char id[32] = "";
  CUuuid uuid{};
  size_t total_bytes = 0;
  int value = 0;
  EXPECT_CU_OK(api_.device_get_name(name, sizeof(name), device_));
  EXPECT_CU_OK(api_.device_get_pci_bus_id(id, sizeof(id), device_));
  EXPECT_CU_OK(api_.device_get_uuid(&uuid, device_));
  EXPECT_CU_OK(api_.device_total_mem(&total_bytes, device_));
  EXPECT_CU_OK(
      api_.device_get_attribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_));
  EXPECT_GT(value, 0);
  EXPECT_GT(total_bytes, 0u);
  NvmlApi nvml;
  std::string error;
  ASSERT_TRUE(LoadNvmlApi(&nvml, &error)) << error;
  ASSERT_EQ(nvml.init(), NvmlResult::kSuccess);
  NvmlDevice other = nullptr;
  ASSERT_EQ(nvml.device_get_handle_by_pci_bus_id(id, &other), NvmlResult::kSuccess);
  char other_name[kNvmlTextBytes] = "";
  char other_uuid[kNvmlTextBytes] = "";
  ASSERT_EQ(nvml.device_get_name(other, other_name, sizeof(other_name)), NvmlResult::kSuccess);
  ASSERT_EQ(nvml.device_get_uuid(other, other_uuid, sizeof(other_uuid)), NvmlResult::kSuccess);
  EXPECT_STREQ(name, other_name);
  std::string hex;
  for (const char byte : uuid.bytes) {
    char digits[3];
    snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
    hex += digits;
  }
  std::string expected(other_uuid);
  expected.erase(0, std::strlen("GPU-"));
  std::erase(expected, '-');
  EXPECT_EQ(hex, expected);
}

TEST_F(DriverConformance, ThreadWithoutContext_CannotAllocate) {
  std::thread([&] {
    CUdeviceptr address = 0;
    EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, api_.mem_alloc(&address, 4096));
    EXPECT_CU_OK(api_.ctx_push_current(context_));
    EXPECT_CU_OK(api_.mem_alloc(&address, 4096));
    EXPECT_CU_OK(api_.mem_free(address));
    CUcontext popped = nullptr;
    EXPECT_CU_OK(api_.ctx_pop_current(&popped));
    EXPECT_EQ(popped, context_);
    EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, api_.mem_alloc(&address, 4096));
  }).join();
}

TEST_F(DriverConformance, StreamPriorities_FallFromLeastToGreatest) {
  int least = -1;
  int greatest = 1;
  EXPECT_CU_OK(api_.ctx_get_stream_priority_range(&least, &greatest));
  EXPECT_GE(least, greatest);
  CUstream stream = nullptr;
  EXPECT_CU_OK(api_.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, least));
  EXPECT_CU_OK(api_.stream_destroy(stream));
}

TEST_F(DriverConformance, PlainMemory_IsThereUntilItIsFreed) {
  CUdeviceptr address = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_alloc(&address, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, api_.mem_alloc(&address, kTooManyBytes));
  EXPECT_CU_OK(api_.mem_alloc(&address, kWords * sizeof(uint32_t)));
  Fill(address, 7, kWords);
  EXPECT_EQ(Read(address, kWords), std::vector<uint32_t>(kWords, 7));
  EXPECT_CU_OK(api_.mem_free(address));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_free(address));
}

TEST_F(DriverConformance, FreeBytes_ShrinkByWhatIsCreated) {
  constexpr uint64_t kBytes = 64 << 20;
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  EXPECT_CU_OK(api_.mem_get_info(&before, &total));
  EXPECT_LE(before, total);
  const CUmemGenericAllocationHandle handle = Create(kBytes);
  EXPECT_CU_OK(api_.mem_get_info(&after, &total));
  EXPECT_EQ(before - after, kBytes);
  EXPECT_CU_OK(api_.mem_release(handle));
  EXPECT_CU_OK(api_.mem_get_info(&after, &total));
  EXPECT_EQ(after, before);
}

TEST_F(DriverConformance, Create_TakesMultiplesOfTheGranularityAlone) {
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_create(&handle, 0, &properties, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            api_.mem_create(&handle, Granularity() + 4096, &properties, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_create(&handle, Granularity(), &properties, 1));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, api_.mem_create(&handle, kTooManyBytes, &properties, 0));
}

TEST_F(DriverConformance, ImportedMemory_IsTheExportersAndOutlivesItsHandle) {
  const uint64_t bytes = Granularity();
  const CUmemGenericAllocationHandle made = Create(bytes);
  const CUdeviceptr there = MapWhole(made, bytes);
  Fill(there, 0x1234, kWords);
  int fd = -1;
  ASSERT_CU_OK(api_.mem_export(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_GE(fd, 0);
  EXPECT_CU_OK(api_.mem_release(made));
  Unmap(there, bytes);
  CUmemGenericAllocationHandle imported = 0;
  void* const number = reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
  ASSERT_CU_OK(api_.mem_import(&imported, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUdeviceptr here = MapWhole(imported, bytes);
  EXPECT_CU_OK(api_.mem_release(imported));  // the mapping keeps the memory
  EXPECT_EQ(Read(here, kWords), std::vector<uint32_t>(kWords, 0x1234));
  Unmap(here, bytes);
}

TEST_F(DriverConformance, DescriptorOfSomethingElse_IsNotImported) {
  const int fd = memfd_create("no device memory", MFD_CLOEXEC);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_NE(api_.mem_import(&handle, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)),
                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(fd);
}

TEST_F(DriverConformance, Map_RefusesOffsetsOverlapsAndMoreThanThereIs) {
  const uint64_t bytes = Granularity();
  const CUmemGenericAllocationHandle handle = Create(bytes);
  CUdeviceptr range = 0;
  ASSERT_CU_OK(api_.mem_address_reserve(&range, 2 * bytes, 0, 0, 0));
  EXPECT_EQ(range % bytes, 0u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_map(range, bytes, bytes, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_map(range, 2 * bytes, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_map(range, bytes / 2, 0, handle, 0));
  ASSERT_CU_OK(api_.mem_map(range, bytes, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_map(range, bytes, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_unmap(range, bytes / 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_address_free(range, 2 * bytes));
  EXPECT_CU_OK(api_.mem_unmap(range, bytes));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_unmap(range, bytes));
  EXPECT_CU_OK(api_.mem_address_free(range, 2 * bytes));
  EXPECT_CU_OK(api_.mem_release(handle));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_release(handle));
}

TEST_F(DriverConformance, SlabsSideBySide_AreOneRange) {
  const uint64_t bytes = Granularity();
  const CUmemGenericAllocationHandle slabs[2] = {Create(bytes), Create(bytes)};
  CUdeviceptr range = 0;
  ASSERT_CU_OK(api_.mem_address_reserve(&range, 2 * bytes, 0, 0, 0));
  CUmemAccessDesc access{};
  access.location = Properties().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (int i = 0; i < 2; ++i) {
    ASSERT_CU_OK(api_.mem_map(range + i * bytes, bytes, 0, slabs[i], 0));
    ASSERT_CU_OK(api_.mem_set_access(range + i * bytes, bytes, &access, 1));
    EXPECT_CU_OK(api_.mem_release(slabs[i]));
  }
  const CUdeviceptr across = range + bytes - kWords * sizeof(uint32_t) / 2;
  Fill(across, 9, kWords);
  EXPECT_EQ(Read(across, kWords), std::vector<uint32_t>(kWords, 9));
  EXPECT_CU_OK(api_.mem_unmap(range, 2 * bytes));
  EXPECT_CU_OK(api_.mem_address_free(range, 2 * bytes));
}

TEST(DeviceAddressDeathTest, ProcessorThatTouchesDeviceMemory_IsKilled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const DriverApi& api = TheDriver();
        CUcontext context = nullptr;
        CUdeviceptr address = 0;
        if (api.primary_ctx_retain(&context, 0) != CUDA_SUCCESS ||
            api.ctx_set_current(context) != CUDA_SUCCESS ||
            api.mem_alloc(&address, 4096) != CUDA_SUCCESS) {
          _exit(1);
        }
        *reinterpret_cast<volatile char*>(address) = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(DriverConformance, HostMemory_IsRegisteredOnce) {
  constexpr uint64_t kBytes = 1 << 20;
  void* const data =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  CUdeviceptr address = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_host_get_device_pointer(&address, data, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, api_.mem_host_register(data, 0, 0));
  ASSERT_CU_OK(api_.mem_host_register(data, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            api_.mem_host_register(data, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_CU_OK(api_.mem_host_get_device_pointer(&address, data, 0));
  EXPECT_CU_OK(api_.mem_host_unregister(data));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, api_.mem_host_unregister(data));
  munmap(data, kBytes);
}

TEST_F(DriverConformance, PointerAttribute_TellsMemoryOfTheDeviceFromThatOfTheHost) {
  unsigned type = 0;  // the driver writes four bytes
  CUdeviceptr device = 0;
  ASSERT_CU_OK(api_.mem_alloc(&device, 4096));
  EXPECT_CU_OK(api_.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 100));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  const PinnedWords words(api_, 2);
  EXPECT_CU_OK(
      api_.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, words.address()));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  const std::vector<char> plain(4096);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            api_.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<uintptr_t>(plain.data())));
  EXPECT_CU_OK(api_.mem_free(device));
}

TEST_F(DriverConformance, PinnedMemory_IsTheHostsAndTheDevices) {
  const PinnedWords words(api_, 2);
  EXPECT_NE(words.address(), 0u);
  EXPECT_CU_OK(api_.memset_d32_async(words.address(), 5, 4, stream_));
  Synchronize();
  EXPECT_EQ(words[1], 0x500000005u);
}

}  // namespace
}  // namespace geminid::gpu
