// Device memory and host memory.
#include <cstring>
#include <utility>

#include "tests/gpu/double/calls.h"
#include "tests/gpu/double/memory.h"
#include "tests/gpu/double/node_file.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double::calls {
namespace {

bool IsOnDevice(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && IsDevice(location.id);
}

bool IsKnown(const CUmemAllocationProp* properties) {
  return properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         IsOnDevice(properties->location) &&
         (properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
          static_cast<unsigned>(properties->requestedHandleTypes) == 0);
}

// The driver takes descriptors in place of pointers.
int Descriptor(void* handle) { return static_cast<int>(reinterpret_cast<intptr_t>(handle)); }

}  // namespace

CUresult mem_alloc(CUdeviceptr* address, size_t bytes) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return DeviceMemory::Get().Allocate(CurrentContext()->device(), bytes, address);
}
CUresult mem_free(CUdeviceptr address) {
  CurrentContext()->Synchronize();  // as the driver does before it frees memory
  return DeviceMemory::Get().Free(address);
}
CUresult mem_host_alloc(void** data, size_t bytes, unsigned) {
  return data == nullptr ? CUDA_ERROR_INVALID_VALUE : HostMemory::Get().Allocate(bytes, data);
}
CUresult mem_free_host(void* data) {
  CurrentContext()->Synchronize();
  return HostMemory::Get().Free(data);
}
CUresult mem_host_register(void* data, size_t bytes, unsigned) {
  return HostMemory::Get().Register(data, bytes);
}
CUresult mem_host_unregister(void* data) { return HostMemory::Get().Unregister(data); }
CUresult mem_host_get_device_pointer(CUdeviceptr* address, void* data, unsigned flags) {
  if (address == nullptr || flags != 0 || !HostMemory::Get().IsPinned(data, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = reinterpret_cast<uintptr_t>(data);  // one address space
  return CUDA_SUCCESS;
}
// An address that the driver does not know, such as unregistered host memory, is an error.
CUresult pointer_get_attribute(void* to, CUpointer_attribute attribute, CUdeviceptr address) {
  if (to == nullptr || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool of_device = DeviceMemory::Get().IsMapped(address, 1);
  if (!of_device && !HostMemory::Get().IsPinned(reinterpret_cast<const void*>(address), 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUmemorytype type = of_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  std::memcpy(to, &type, sizeof(type));
  return CUDA_SUCCESS;
}

CUresult mem_get_allocation_granularity(size_t* bytes, const CUmemAllocationProp* properties,
                                        CUmemAllocationGranularity_flags) {
  if (bytes == nullptr || !IsKnown(properties)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranularityBytes;
  return CUDA_SUCCESS;
}
CUresult mem_create(CUmemGenericAllocationHandle* handle, size_t bytes,
                    const CUmemAllocationProp* properties, unsigned long long flags) {
  if (handle == nullptr || flags != 0 || !IsKnown(properties)) return CUDA_ERROR_INVALID_VALUE;
  if (ThisNode().create_needs_context && CurrentContext() == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const int device = VisibleDevices()[static_cast<size_t>(properties->location.id)];
  if (ThisNode().device[device].lost) return CUDA_ERROR_UNKNOWN;
  return DeviceMemory::Get().Create(
      device, bytes, properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      handle);
}
CUresult mem_release(CUmemGenericAllocationHandle handle) {
  return DeviceMemory::Get().Release(handle);
}
CUresult mem_export(void* to, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                    unsigned long long flags) {
  if (to == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int fd = -1;
  const CUresult result = DeviceMemory::Get().Export(handle, &fd);
  if (result == CUDA_SUCCESS) std::memcpy(to, &fd, sizeof(fd));
  return result;
}
CUresult mem_import(CUmemGenericAllocationHandle* handle, void* from,
                    CUmemAllocationHandleType type) {
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return DeviceMemory::Get().Import(Descriptor(from), handle);
}
CUresult mem_address_reserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return DeviceMemory::Get().Reserve(bytes, alignment, address);
}
CUresult mem_address_free(CUdeviceptr address, size_t bytes) {
  return DeviceMemory::Get().FreeReserved(address, bytes);
}
CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return DeviceMemory::Get().Map(address, bytes, handle);
}
CUresult mem_unmap(CUdeviceptr address, size_t bytes) {
  // After an error queued work is dropped, but one operation may still run.
  Context* const context = CurrentContext();
  if (context != nullptr && context->failed()) context->Synchronize();
  return DeviceMemory::Get().Unmap(address, bytes);
}
CUresult mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* description,
                        size_t count) {
  if (description == nullptr || count != 1 || !IsOnDevice(description->location)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (description->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
      return DeviceMemory::Get().SetAccess(address, bytes, Access::kNone);
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      return DeviceMemory::Get().SetAccess(address, bytes, Access::kRead);
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return DeviceMemory::Get().SetAccess(address, bytes, Access::kReadWrite);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace geminid::gpu_double::calls
