// Devices, contexts and the words of errors.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/gpu/double/calls.h"
#include "tests/gpu/double/memory.h"
#include "tests/gpu/double/node_file.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double::calls {
namespace {

constexpr int kMultiprocessors = 4;
constexpr int kComputeMajor = 9;
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

int NodeDevice(CUdevice device) { return VisibleDevices()[static_cast<size_t>(device)]; }
DeviceState& StateOf(CUdevice device) { return ThisNode().device[NodeDevice(device)]; }

CUresult CopyText(const std::string& text, char* to, int length) {
  if (to == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(to, static_cast<size_t>(length), "%s", text.c_str());
  return CUDA_SUCCESS;
}

std::mutex& RetainLock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

}  // namespace

CUresult init(unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : InitialiseProcess();
}
CUresult driver_get_version(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = ThisNode().driver_version;
  return CUDA_SUCCESS;
}
CUresult get_error_name(CUresult result, const char** name) { return ErrorName(result, name); }
CUresult get_error_string(CUresult result, const char** text) { return ErrorText(result, text); }

CUresult device_get_count(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(VisibleDevices().size());
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult device_get_name(char* name, int length, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  return CopyText(NameOf(ThisNode(), NodeDevice(device)), name, length);
}
// As since CUDA 11.4: an instance has its own UUID.
CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::string text = UuidOf(ThisNode(), NodeDevice(device));
  size_t at = std::strlen("GPU-");  // or "MIG-"
  for (char& byte : uuid->bytes) {
    if (text[at] == '-') ++at;
    unsigned value = 0;
    std::sscanf(text.c_str() + at, "%2x", &value);
    byte = static_cast<char>(value);
    at += 2;
  }
  return CUDA_SUCCESS;
}
CUresult device_total_mem(size_t* bytes, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = StateOf(device).memory_bytes;
  return CUDA_SUCCESS;
}
CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kMultiprocessors;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = kComputeMajor;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = ThisNode().no_stream_memory_operations ? 0 : 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // an attribute that nobody has used so far: add it
  }
}
CUresult device_get_pci_bus_id(char* id, int length, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  // The domain has four digits in CUDA and eight in NVML.
  return CopyText(PciBusIdOf(GpuOf(ThisNode(), NodeDevice(device))).substr(4), id, length);
}

CUresult primary_ctx_retain(CUcontext* context, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (StateOf(device).lost) return CUDA_ERROR_UNKNOWN;
  Context* const primary = PrimaryContext(device);
  const std::lock_guard lock(RetainLock());
  ++primary->retained;
  *context = reinterpret_cast<CUcontext>(primary);
  return CUDA_SUCCESS;
}
CUresult primary_ctx_release(CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context* const primary = PrimaryContext(device);
  const std::lock_guard lock(RetainLock());
  if (primary->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --primary->retained;
  return CUDA_SUCCESS;
}
CUresult ctx_set_current(CUcontext handle) {
  std::vector<Context*>& stack = ContextStack();
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  Context* const context = ContextOf(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) {
    stack.push_back(context);
  } else {
    stack.back() = context;
  }
  return CUDA_SUCCESS;
}
CUresult ctx_push_current(CUcontext handle) {
  Context* const context = ContextOf(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStack().push_back(context);
  return CUDA_SUCCESS;
}
CUresult ctx_pop_current(CUcontext* handle) {
  std::vector<Context*>& stack = ContextStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult ctx_synchronize() {
  CurrentContext()->Synchronize();
  return CurrentContext()->error();
}
CUresult ctx_get_stream_priority_range(int* least, int* greatest) {
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}
CUresult mem_get_info(size_t* free_bytes, size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int device = CurrentContext()->device();
  *total_bytes = ThisNode().device[device].memory_bytes;
  const uint64_t used = UsedBytes(ThisNode(), device);
  *free_bytes = used > *total_bytes ? 0 : *total_bytes - used;
  return CUDA_SUCCESS;
}

}  // namespace geminid::gpu_double::calls
