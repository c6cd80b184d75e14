// Compares our own declarations of the driver's types with cuda.h, on machines that have it.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "gpu/driver_api.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

#undef CU_MEMHOSTALLOC_PORTABLE
#undef CU_MEMHOSTALLOC_DEVICEMAP
#undef CU_MEMHOSTREGISTER_PORTABLE
#undef CU_MEMHOSTREGISTER_DEVICEMAP
namespace own {
#include "gpu/own_driver_types.h"
}

namespace geminid::gpu {
namespace {

// Every function of the table has the type that cuda.h declares for it.
#define SAME_TYPE(member, function) \
  static_assert(std::is_same_v<decltype(DriverApi::member), decltype(&function)>, #member)
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
SAME_TYPE(pointer_get_attribute, cuPointerGetAttribute);
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
SAME_TYPE(library_load_data, cuLibraryLoadData);
SAME_TYPE(library_get_kernel, cuLibraryGetKernel);
SAME_TYPE(event_elapsed_time, cuEventElapsedTime);
SAME_TYPE(launch_kernel, cuLaunchKernel);
SAME_TYPE(launch_host_func, cuLaunchHostFunc);
SAME_TYPE(get_error_name, cuGetErrorName);
SAME_TYPE(get_error_string, cuGetErrorString);
SAME_TYPE(device_get_count, cuDeviceGetCount);
SAME_TYPE(device_get_uuid, cuDeviceGetUuid);
SAME_TYPE(primary_ctx_release, cuDevicePrimaryCtxRelease);
SAME_TYPE(ctx_push_current, cuCtxPushCurrent);
SAME_TYPE(ctx_pop_current, cuCtxPopCurrent);
SAME_TYPE(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange);
SAME_TYPE(memcpy_async, cuMemcpyAsync);
SAME_TYPE(memset_d8_async, cuMemsetD8Async);
SAME_TYPE(stream_create_with_priority, cuStreamCreateWithPriority);
SAME_TYPE(stream_wait_event, cuStreamWaitEvent);
SAME_TYPE(event_query, cuEventQuery);

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
SAME_SIZE(CUmemcpyAttributes);
SAME_SIZE(CUuuid);

#define SAME_PLACE(type, member) \
  static_assert(offsetof(::type, member) == offsetof(own::type, member), #type "." #member)
SAME_PLACE(CUmemLocation, id);
SAME_PLACE(CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(CUmemAllocationProp, location);
SAME_PLACE(CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(CUmemAllocationProp, allocFlags);
SAME_PLACE(CUmemAccessDesc, flags);
SAME_PLACE(CUmemcpyAttributes, srcLocHint);
SAME_PLACE(CUmemcpyAttributes, dstLocHint);
SAME_PLACE(CUmemcpyAttributes, flags);

#define SAME_VALUE(name) \
  static_assert(static_cast<long>(::name) == static_cast<long>(own::name), #name)
SAME_VALUE(CUDA_SUCCESS);
SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(CU_MEMORYTYPE_HOST);
SAME_VALUE(CU_MEMORYTYPE_DEVICE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_ERROR_DEINITIALIZED);
SAME_VALUE(CUDA_ERROR_STUB_LIBRARY);
SAME_VALUE(CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME_VALUE(CUDA_ERROR_NO_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_VALUE(CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_NOT_READY);
SAME_VALUE(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_VALUE(CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_VALUE(CUDA_ERROR_ASSERT);
SAME_VALUE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME_VALUE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME_VALUE(CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME_VALUE(CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME_VALUE(CUDA_ERROR_MISALIGNED_ADDRESS);
SAME_VALUE(CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME_VALUE(CUDA_ERROR_INVALID_PC);
SAME_VALUE(CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(CUDA_ERROR_NOT_PERMITTED);
SAME_VALUE(CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(CUDA_ERROR_SYSTEM_NOT_READY);
SAME_VALUE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_VALUE(CUDA_ERROR_TIMEOUT);
SAME_VALUE(CUDA_ERROR_UNKNOWN);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
SAME_VALUE(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(CU_MEM_LOCATION_TYPE_INVALID);
SAME_VALUE(CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
SAME_VALUE(CU_GET_PROC_ADDRESS_SUCCESS);
SAME_VALUE(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME_VALUE(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
SAME_VALUE(CU_STREAM_DEFAULT);
SAME_VALUE(CU_STREAM_NON_BLOCKING);
SAME_VALUE(CU_EVENT_DEFAULT);
SAME_VALUE(CU_EVENT_BLOCKING_SYNC);
SAME_VALUE(CU_EVENT_DISABLE_TIMING);
SAME_VALUE(CU_STREAM_WRITE_VALUE_DEFAULT);
SAME_VALUE(CU_STREAM_WAIT_VALUE_GEQ);

}  // namespace
}  // namespace geminid::gpu
#endif

namespace geminid::gpu {
namespace {

TEST(DriverTable, HasNoFunctionBeforeTheDriverIsLoaded) {
  const DriverApi api;
#define GEMINID_EXPECT_EMPTY(member, name, parameters) EXPECT_EQ(api.member, nullptr) << name;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_EXPECT_EMPTY)
  GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_EXPECT_EMPTY)
#undef GEMINID_EXPECT_EMPTY
}

const std::filesystem::path kRoot = GEMINID_SOURCE_DIR;

std::string Text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The sources of the folders that use the table, in one text.
std::string TextOfUsers() {
  std::string text;
  for (const char* folder : {"gpu", "client", "daemon", "kernels", "collectives", "tools"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() != ".cc" && path.extension() != ".h" && path.extension() != ".cuh") {
        continue;
      }
      if (path.filename() != "own_driver_types.h") text += Text(path) + "\n";
    }
  }
  return text;
}

std::set<std::string> Matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> matches;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    matches.insert(match->str(1));
  }
  return matches;
}

// On machines with cuda.h a missing declaration of our own would otherwise go unnoticed.
TEST(OwnDriverTypes, EveryNameThatTheProjectUses_IsDeclared) {
  const std::regex name(
      R"(\b(CU_[A-Z0-9_]+|CUDA_SUCCESS|CUDA_ERROR_[A-Z0-9_]+|CU[a-z]\w+|cuuint\w+)\b)");
  const std::set<std::string> own = Matches(Text(kRoot / "gpu" / "own_driver_types.h"), name);
  const std::set<std::string> used = Matches(TextOfUsers(), name);
  EXPECT_GT(used.size(), 60u);
  for (const std::string& one : used) EXPECT_TRUE(own.contains(one)) << one;
}

}  // namespace
}  // namespace geminid::gpu
