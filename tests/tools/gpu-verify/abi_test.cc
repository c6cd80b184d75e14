// Our own declarations of the driver's types against cuda.h, on machines that have it.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "tools/gpu-verify/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

#undef CU_MEMHOSTALLOC_PORTABLE
#undef CU_MEMHOSTALLOC_DEVICEMAP
#undef CU_MEMHOSTREGISTER_PORTABLE
#undef CU_MEMHOSTREGISTER_DEVICEMAP
namespace own {
#include "tools/gpu-verify/own_driver_types.h"
}

namespace geminid::gpu_verify {
namespace {

// Every function of the table has the type that cuda.h declares for it.
#define SAME_TYPE(member, function) \
  static_assert(std::is_same_v<decltype(Driver::member), decltype(&function)>, #member)
SAME_TYPE(init, cuInit);
SAME_TYPE(driver_get_version, cuDriverGetVersion);
SAME_TYPE(device_get, cuDeviceGet);
SAME_TYPE(device_get_name, cuDeviceGetName);
SAME_TYPE(device_total_mem, cuDeviceTotalMem);
SAME_TYPE(device_get_attribute, cuDeviceGetAttribute);
SAME_TYPE(device_get_pci_bus_id, cuDeviceGetPCIBusId);
SAME_TYPE(primary_ctx_retain, cuDevicePrimaryCtxRetain);
SAME_TYPE(ctx_set_current, cuCtxSetCurrent);
SAME_TYPE(ctx_synchronize, cuCtxSynchronize);
SAME_TYPE(mem_get_info, cuMemGetInfo);
SAME_TYPE(mem_alloc, cuMemAlloc);
SAME_TYPE(mem_free, cuMemFree);
SAME_TYPE(mem_host_alloc, cuMemHostAlloc);
SAME_TYPE(mem_free_host, cuMemFreeHost);
SAME_TYPE(mem_host_register, cuMemHostRegister);
SAME_TYPE(mem_host_unregister, cuMemHostUnregister);
SAME_TYPE(mem_host_get_device_pointer, cuMemHostGetDevicePointer);
SAME_TYPE(memcpy_htod_async, cuMemcpyHtoDAsync);
SAME_TYPE(memcpy_dtoh_async, cuMemcpyDtoHAsync);
SAME_TYPE(memcpy_dtod_async, cuMemcpyDtoDAsync);
SAME_TYPE(memset_d32_async, cuMemsetD32Async);
SAME_TYPE(stream_create, cuStreamCreate);
SAME_TYPE(stream_destroy, cuStreamDestroy);
SAME_TYPE(stream_synchronize, cuStreamSynchronize);
SAME_TYPE(stream_query, cuStreamQuery);
SAME_TYPE(stream_write_value64, cuStreamWriteValue64);
SAME_TYPE(stream_wait_value64, cuStreamWaitValue64);
SAME_TYPE(event_create, cuEventCreate);
SAME_TYPE(event_destroy, cuEventDestroy);
SAME_TYPE(event_record, cuEventRecord);
SAME_TYPE(event_synchronize, cuEventSynchronize);
SAME_TYPE(mem_get_allocation_granularity, cuMemGetAllocationGranularity);
SAME_TYPE(mem_create, cuMemCreate);
SAME_TYPE(mem_release, cuMemRelease);
SAME_TYPE(mem_export, cuMemExportToShareableHandle);
SAME_TYPE(mem_import, cuMemImportFromShareableHandle);
SAME_TYPE(mem_address_reserve, cuMemAddressReserve);
SAME_TYPE(mem_address_free, cuMemAddressFree);
SAME_TYPE(mem_map, cuMemMap);
SAME_TYPE(mem_unmap, cuMemUnmap);
SAME_TYPE(mem_set_access, cuMemSetAccess);
SAME_TYPE(module_load_data, cuModuleLoadData);
SAME_TYPE(module_get_function, cuModuleGetFunction);
SAME_TYPE(launch_kernel, cuLaunchKernel);
SAME_TYPE(launch_host_func, cuLaunchHostFunc);
SAME_TYPE(get_error_name, cuGetErrorName);

#define SAME_SIZE(type) static_assert(sizeof(::type) == sizeof(own::type), #type)
SAME_SIZE(CUresult);
SAME_SIZE(CUdevice);
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUmemGenericAllocationHandle);
SAME_SIZE(cuuint64_t);
SAME_SIZE(CUcontext);
SAME_SIZE(CUdevice_attribute);
SAME_SIZE(CUmemLocation);
SAME_SIZE(CUmemAllocationProp);
SAME_SIZE(CUmemAccessDesc);

#define SAME_PLACE(type, member) \
  static_assert(offsetof(::type, member) == offsetof(own::type, member), #type "." #member)
SAME_PLACE(CUmemLocation, id);
SAME_PLACE(CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(CUmemAllocationProp, location);
SAME_PLACE(CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(CUmemAllocationProp, allocFlags);
SAME_PLACE(CUmemAccessDesc, flags);

#define SAME_VALUE(name) \
  static_assert(static_cast<long>(::name) == static_cast<long>(own::name), #name)
SAME_VALUE(CUDA_SUCCESS);
SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ERROR_NOT_READY);
SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(CU_GET_PROC_ADDRESS_SUCCESS);
SAME_VALUE(CU_STREAM_NON_BLOCKING);
SAME_VALUE(CU_EVENT_DEFAULT);
SAME_VALUE(CU_STREAM_WRITE_VALUE_DEFAULT);
SAME_VALUE(CU_STREAM_WAIT_VALUE_GEQ);

}  // namespace
}  // namespace geminid::gpu_verify
#endif

namespace geminid::gpu_verify {
namespace {

TEST(DriverTable, HasNoFunctionBeforeTheDriverIsLoaded) {
  const Driver driver;
#define GEMINID_EXPECT_EMPTY(member, name, parameters) EXPECT_EQ(driver.member, nullptr) << name;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_EXPECT_EMPTY)
#undef GEMINID_EXPECT_EMPTY
}

std::string Text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Where cuda.h is, a forgotten declaration of our own would not be missed otherwise.
TEST(OwnDriverTypes, EveryNameThatTheProgramUses_IsDeclared) {
  const std::filesystem::path folder = GEMINID_SOURCE_DIR "/tools/gpu-verify";
  const std::string own = Text(folder / "own_driver_types.h");
  const std::regex name(
      R"(\b(CU_[A-Z0-9_]+|CUDA_SUCCESS|CUDA_ERROR_[A-Z0-9_]+|CU[a-z]\w+|cuuint\w+)\b)");
  int names = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".cc" && path.filename() != "driver.h") continue;
    const std::string text = Text(path);
    for (std::sregex_iterator match(text.begin(), text.end(), name), end; match != end; ++match) {
      ++names;
      EXPECT_TRUE(std::regex_search(own, std::regex("\\b" + match->str() + "\\b")))
          << match->str() << " in " << path;
    }
  }
  EXPECT_GT(names, 100);
}

}  // namespace
}  // namespace geminid::gpu_verify
