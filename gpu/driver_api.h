// The CUDA driver as a table of functions that are loaded at run time: one binary starts with and
// without a driver, and nothing of CUDA is linked. The table has only the functions that the
// project calls; to use another function, add a line.
//
// The table is plain data. Its functions are those of the driver's documented interface, in the
// variants of CUDA 12.0, which every driver since R525 has. Newer functions are in a second list,
// and null in older drivers. This header does not need Abseil, because programs that are built on
// bare machines use it. Errors as absl::Status are in gpu/driver.h.
#ifndef GEMINID_GPU_DRIVER_API_H_
#define GEMINID_GPU_DRIVER_API_H_

#include <cstddef>
#include <string>

#if __has_include(<cuda.h>) && !defined(GEMINID_OWN_DRIVER_TYPES)
#include <cuda.h>
#else
#include "gpu/own_driver_types.h"
#endif

namespace geminid::gpu {

// One line per function: member, name in the driver, parameters.
#define GEMINID_DRIVER_FUNCTIONS(X)                                                              \
  X(init, "cuInit", (unsigned))                                                                  \
  X(driver_get_version, "cuDriverGetVersion", (int*))                                            \
  X(get_error_name, "cuGetErrorName", (CUresult, const char**))                                  \
  X(get_error_string, "cuGetErrorString", (CUresult, const char**))                              \
  X(device_get_count, "cuDeviceGetCount", (int*))                                                \
  X(device_get, "cuDeviceGet", (CUdevice*, int))                                                 \
  X(device_get_name, "cuDeviceGetName", (char*, int, CUdevice))                                  \
  X(device_get_uuid, "cuDeviceGetUuid", (CUuuid*, CUdevice))                                     \
  X(device_total_mem, "cuDeviceTotalMem", (size_t*, CUdevice))                                   \
  X(device_get_attribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))          \
  X(device_get_pci_bus_id, "cuDeviceGetPCIBusId", (char*, int, CUdevice))                        \
  X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                      \
  X(primary_ctx_release, "cuDevicePrimaryCtxRelease", (CUdevice))                                \
  X(ctx_set_current, "cuCtxSetCurrent", (CUcontext))                                             \
  X(ctx_push_current, "cuCtxPushCurrent", (CUcontext))                                           \
  X(ctx_pop_current, "cuCtxPopCurrent", (CUcontext*))                                            \
  X(ctx_synchronize, "cuCtxSynchronize", ())                                                     \
  X(ctx_get_stream_priority_range, "cuCtxGetStreamPriorityRange", (int*, int*))                  \
  X(mem_get_info, "cuMemGetInfo", (size_t*, size_t*))                                            \
  X(mem_alloc, "cuMemAlloc", (CUdeviceptr*, size_t))                                             \
  X(mem_free, "cuMemFree", (CUdeviceptr))                                                        \
  X(mem_host_alloc, "cuMemHostAlloc", (void**, size_t, unsigned))                                \
  X(mem_free_host, "cuMemFreeHost", (void*))                                                     \
  X(mem_host_register, "cuMemHostRegister", (void*, size_t, unsigned))                           \
  X(mem_host_unregister, "cuMemHostUnregister", (void*))                                         \
  X(mem_host_get_device_pointer, "cuMemHostGetDevicePointer", (CUdeviceptr*, void*, unsigned))   \
  X(pointer_get_attribute, "cuPointerGetAttribute", (void*, CUpointer_attribute, CUdeviceptr))   \
  X(memcpy_async, "cuMemcpyAsync", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                 \
  X(memcpy_htod_async, "cuMemcpyHtoDAsync", (CUdeviceptr, const void*, size_t, CUstream))        \
  X(memcpy_dtoh_async, "cuMemcpyDtoHAsync", (void*, CUdeviceptr, size_t, CUstream))              \
  X(memcpy_dtod_async, "cuMemcpyDtoDAsync", (CUdeviceptr, CUdeviceptr, size_t, CUstream))        \
  X(memset_d8_async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))          \
  X(memset_d32_async, "cuMemsetD32Async", (CUdeviceptr, unsigned, size_t, CUstream))             \
  X(stream_create, "cuStreamCreate", (CUstream*, unsigned))                                      \
  X(stream_create_with_priority, "cuStreamCreateWithPriority", (CUstream*, unsigned, int))       \
  X(stream_destroy, "cuStreamDestroy", (CUstream))                                               \
  X(stream_synchronize, "cuStreamSynchronize", (CUstream))                                       \
  X(stream_query, "cuStreamQuery", (CUstream))                                                   \
  X(stream_wait_event, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                       \
  X(stream_write_value64, "cuStreamWriteValue64", (CUstream, CUdeviceptr, cuuint64_t, unsigned)) \
  X(stream_wait_value64, "cuStreamWaitValue64", (CUstream, CUdeviceptr, cuuint64_t, unsigned))   \
  X(event_create, "cuEventCreate", (CUevent*, unsigned))                                         \
  X(event_destroy, "cuEventDestroy", (CUevent))                                                  \
  X(event_record, "cuEventRecord", (CUevent, CUstream))                                          \
  X(event_query, "cuEventQuery", (CUevent))                                                      \
  X(event_synchronize, "cuEventSynchronize", (CUevent))                                          \
  X(event_elapsed_time, "cuEventElapsedTime", (float*, CUevent, CUevent))                        \
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
  X(library_load_data, "cuLibraryLoadData",                                                      \
    (CUlibrary*, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,         \
     unsigned))                                                                                  \
  X(library_get_kernel, "cuLibraryGetKernel", (CUkernel*, CUlibrary, const char*))               \
  X(launch_kernel, "cuLaunchKernel",                                                             \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
     void**, void**))                                                                            \
  X(launch_host_func, "cuLaunchHostFunc", (CUstream, CUhostFn, void*))

// Functions since CUDA 12.8, in the variants of then: null in older drivers.
#define GEMINID_NEWER_DRIVER_FUNCTIONS(X)                                                        \
  X(memcpy_batch_async, "cuMemcpyBatchAsync",                                                    \
    (CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*, size_t, size_t*, \
     CUstream))

struct DriverApi {
#define GEMINID_MEMBER(member, name, parameters) CUresult(*member) parameters = nullptr;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_MEMBER)
  GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
};

// Names the driver's library if it is not libcuda.so.1 on the loader's path: a file, or a name that
// dlopen finds. Tests use it for a driver of their own. Set-user-ID programs ignore it.
inline constexpr char kDriverPathVariable[] = "GEMINID_LIBCUDA";

// The table of this process's driver. The first call loads and initialises it (cuInit); later ones
// return the same. Null, with `error` set, if there is no driver or no GPU, then also later. Makes
// no context and takes no device memory. Thread-safe. A child forked later has no driver.
const DriverApi* ProcessDriver(std::string* error);

// Fills the table from libcuda.so.1, or from the library that the variable names. False, with
// `error` set, if there is no driver, it is older than R525, or it lacks a function. Does not
// initialise the driver. The library stays loaded for the life of the process: the driver does not
// survive being unloaded.
bool LoadDriverApi(DriverApi* api, std::string* error);

// The driver's name, number and words for an error.
std::string DescribeError(const DriverApi& api, CUresult result);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_DRIVER_API_H_
