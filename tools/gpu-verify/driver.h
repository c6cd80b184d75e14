// The CUDA driver as a table of functions, found when the program runs: one binary starts with and
// without a driver, and tests put a driver of their own into the table.
//
// The table is plain data. Its functions are those of the driver's documented interface, in the
// variants of CUDA 12.0, which every driver since R525 has. One process initialises the driver at
// most once and forks no more after that; see process.h.
#ifndef GEMINID_TOOLS_GPU_VERIFY_DRIVER_H_
#define GEMINID_TOOLS_GPU_VERIFY_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#if __has_include(<cuda.h>) && !defined(GEMINID_OWN_DRIVER_TYPES)
#include <cuda.h>
#else
#include "tools/gpu-verify/own_driver_types.h"
#endif

namespace geminid::gpu_verify {

// One line per function: member, name in the driver, parameters.
#define GEMINID_DRIVER_FUNCTIONS(X)                                                              \
  X(init, "cuInit", (unsigned))                                                                  \
  X(driver_get_version, "cuDriverGetVersion", (int*))                                            \
  X(device_get, "cuDeviceGet", (CUdevice*, int))                                                 \
  X(device_get_name, "cuDeviceGetName", (char*, int, CUdevice))                                  \
  X(device_total_mem, "cuDeviceTotalMem", (size_t*, CUdevice))                                   \
  X(device_get_attribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))          \
  X(device_get_pci_bus_id, "cuDeviceGetPCIBusId", (char*, int, CUdevice))                        \
  X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                      \
  X(ctx_set_current, "cuCtxSetCurrent", (CUcontext))                                             \
  X(ctx_synchronize, "cuCtxSynchronize", ())                                                     \
  X(mem_get_info, "cuMemGetInfo", (size_t*, size_t*))                                            \
  X(mem_alloc, "cuMemAlloc", (CUdeviceptr*, size_t))                                             \
  X(mem_free, "cuMemFree", (CUdeviceptr))                                                        \
  X(mem_host_alloc, "cuMemHostAlloc", (void**, size_t, unsigned))                                \
  X(mem_free_host, "cuMemFreeHost", (void*))                                                     \
  X(mem_host_register, "cuMemHostRegister", (void*, size_t, unsigned))                           \
  X(mem_host_unregister, "cuMemHostUnregister", (void*))                                         \
  X(mem_host_get_device_pointer, "cuMemHostGetDevicePointer", (CUdeviceptr*, void*, unsigned))   \
  X(memcpy_htod_async, "cuMemcpyHtoDAsync", (CUdeviceptr, const void*, size_t, CUstream))        \
  X(memcpy_dtoh_async, "cuMemcpyDtoHAsync", (void*, CUdeviceptr, size_t, CUstream))              \
  X(memcpy_dtod_async, "cuMemcpyDtoDAsync", (CUdeviceptr, CUdeviceptr, size_t, CUstream))        \
  X(memset_d32_async, "cuMemsetD32Async", (CUdeviceptr, unsigned, size_t, CUstream))             \
  X(stream_create, "cuStreamCreate", (CUstream*, unsigned))                                      \
  X(stream_destroy, "cuStreamDestroy", (CUstream))                                               \
  X(stream_synchronize, "cuStreamSynchronize", (CUstream))                                       \
  X(stream_query, "cuStreamQuery", (CUstream))                                                   \
  X(stream_write_value64, "cuStreamWriteValue64", (CUstream, CUdeviceptr, cuuint64_t, unsigned)) \
  X(stream_wait_value64, "cuStreamWaitValue64", (CUstream, CUdeviceptr, cuuint64_t, unsigned))   \
  X(event_create, "cuEventCreate", (CUevent*, unsigned))                                         \
  X(event_destroy, "cuEventDestroy", (CUevent))                                                  \
  X(event_record, "cuEventRecord", (CUevent, CUstream))                                          \
  X(event_synchronize, "cuEventSynchronize", (CUevent))                                          \
  X(mem_get_allocation_granularity, "cuMemGetAllocationGranularity",                             \
    (size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags))                     \
  X(mem_create, "cuMemCreate",                                                                   \
    (CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long))     \
  X(mem_release, "cuMemRelease", (CUmemGenericAllocationHandle))                                 \
  X(mem_export, "cuMemExportToShareableHandle",                                                  \
    (void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))        \
  X(mem_import, "cuMemImportFromShareableHandle",                                                \
    (CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType))                           \
  X(mem_address_reserve, "cuMemAddressReserve",                                                  \
    (CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long))                             \
  X(mem_address_free, "cuMemAddressFree", (CUdeviceptr, size_t))                                 \
  X(mem_map, "cuMemMap",                                                                         \
    (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))             \
  X(mem_unmap, "cuMemUnmap", (CUdeviceptr, size_t))                                              \
  X(mem_set_access, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc*, size_t))     \
  X(module_load_data, "cuModuleLoadData", (CUmodule*, const void*))                              \
  X(module_get_function, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))            \
  X(launch_kernel, "cuLaunchKernel",                                                             \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
     void**, void**))                                                                            \
  X(launch_host_func, "cuLaunchHostFunc", (CUstream, CUhostFn, void*))                           \
  X(get_error_name, "cuGetErrorName", (CUresult, const char**))

struct Driver {
#define GEMINID_MEMBER(member, name, parameters) CUresult(*member) parameters = nullptr;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
};

// Fills the table from libcuda.so.1. False with `error` set where there is no driver, it is older
// than R525, or it lacks a function. Does not initialise the driver.
bool LoadDriver(Driver* driver, std::string* error);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_DRIVER_H_
