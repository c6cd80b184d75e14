#include "tests/tools/gpu-verify/fake_driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/tools/gpu-verify/fake_device.h"

namespace geminid::gpu_verify {
namespace {

constexpr uint64_t kGranularity = 2 << 20;
struct Range {
  uint64_t bytes = 0;
  bool writable = false;
  int fd = -1;  // of plain device memory
};
// Operations in order. One that returns false must wait.
struct FakeStream {
  std::deque<std::function<bool()>> operations;
  std::function<void()> held_back;  // the copy that a fault delays
};
struct FakeEvent {
  FakeStream* stream = nullptr;
};

std::recursive_mutex mutex;
std::map<CUmemGenericAllocationHandle, int> handles;  // to descriptors
std::map<CUdeviceptr, Range> ranges;
FakeStream default_stream;
thread_local bool context_current = false;
CUmemGenericAllocationHandle next_handle = 1;

char* Pointer(CUdeviceptr address) {
  return reinterpret_cast<char*>(static_cast<uintptr_t>(address));
}
CUdeviceptr Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
FakeStream* Get(CUstream stream) {
  return stream == nullptr ? &default_stream : reinterpret_cast<FakeStream*>(stream);
}

void TakeTime(long milliseconds) {
  const timespec time{0, milliseconds * 1'000'000};
  if (FakeDevice::faults().slow_calls) nanosleep(&time, nullptr);
}

void LetGo(FakeStream* stream) {
  if (stream->held_back) std::exchange(stream->held_back, nullptr)();
}

// Runs all operations that can run. True if none is left.
bool Pump(FakeStream* stream) {
  while (!stream->operations.empty() && stream->operations.front()())
    stream->operations.pop_front();
  return stream->operations.empty();
}

CUresult Enqueue(CUstream stream, std::function<bool()> operation) {
  const std::lock_guard lock(mutex);
  if (!context_current) return CUDA_ERROR_INVALID_CONTEXT;
  Get(stream)->operations.push_back(std::move(operation));
  Pump(Get(stream));
  return CUDA_SUCCESS;
}

// From here on: the functions of the table, with the table's names.
CUresult init(unsigned) { return FakeDevice::Enter() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult driver_get_version(int* version) {
  *version = 12040;
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult device_get_name(char* name, int length, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult device_total_mem(size_t* bytes, CUdevice) {
  *bytes = kFakeDeviceBytes;
  return CUDA_SUCCESS;
}
CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 1;
  return CUDA_SUCCESS;
}
CUresult device_get_pci_bus_id(char* id, int length, CUdevice) {
  std::strncpy(id, "no such bus", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult primary_ctx_retain(CUcontext* context, CUdevice) {
  FakeDevice::AddContext();
  *context = reinterpret_cast<CUcontext>(&default_stream);
  return CUDA_SUCCESS;
}
CUresult ctx_set_current(CUcontext) {
  context_current = true;
  return CUDA_SUCCESS;
}
CUresult ctx_synchronize() {
  const std::lock_guard lock(mutex);
  return Pump(&default_stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult mem_get_info(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = kFakeDeviceBytes;
  *free_bytes = kFakeDeviceBytes - FakeDevice::UsedBytes();
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* address, size_t bytes) {
  const std::lock_guard lock(mutex);
  const int fd = FakeDevice::Allocate(bytes);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  *address = Address(data);
  ranges[*address] = {bytes, true, fd};
  return CUDA_SUCCESS;
}
CUresult mem_free(CUdeviceptr address) {
  const std::lock_guard lock(mutex);
  const auto found = ranges.find(address);
  if (found == ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(Pointer(address), found->second.bytes);
  close(found->second.fd);
  ranges.erase(found);
  return CUDA_SUCCESS;
}
CUresult mem_host_alloc(void** data, size_t bytes, unsigned) {
  *data = new char[bytes]();
  return CUDA_SUCCESS;
}
CUresult mem_free_host(void* data) {
  delete[] static_cast<char*>(data);
  return CUDA_SUCCESS;
}
CUresult mem_host_register(void*, size_t, unsigned) {
  TakeTime(100);  // far longer than a busy machine delays one call
  return CUDA_SUCCESS;
}
CUresult mem_host_unregister(void*) { return CUDA_SUCCESS; }
CUresult mem_host_get_device_pointer(CUdeviceptr* address, void* data, unsigned) {
  *address = Address(data);
  return CUDA_SUCCESS;
}

CUresult memcpy_dtoh_async(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const auto copy = [=] { std::memcpy(to, Pointer(from), bytes); };
  TakeTime(5);
  if (FakeDevice::faults().copies_after_death)
    FakeDevice::CopyBeyondDeath(to, Pointer(from), bytes);
  if (!FakeDevice::faults().word_before_data) {
    return Enqueue(stream, [copy] {
      copy();
      return true;
    });
  }
  const std::lock_guard lock(mutex);
  LetGo(Get(stream));
  // The source may change before the copy is released, as with a copy engine that lags behind.
  std::string data(Pointer(from), bytes);
  Get(stream)->held_back = [to, data = std::move(data)] {
    std::memcpy(to, data.data(), data.size());
  };
  return CUDA_SUCCESS;
}
CUresult memcpy_htod_async(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  TakeTime(5);
  return Enqueue(stream, [=] {
    std::memcpy(Pointer(to), from, bytes);
    return true;
  });
}
CUresult memcpy_dtod_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return memcpy_htod_async(to, Pointer(from), bytes, stream);
}
CUresult memset_d32_async(CUdeviceptr to, unsigned value, size_t words, CUstream stream) {
  {
    const std::lock_guard lock(mutex);
    auto range = ranges.upper_bound(to);
    if (range == ranges.begin()) return CUDA_ERROR_INVALID_VALUE;
    --range;
    if (to + words * 4 > range->first + range->second.bytes || !range->second.writable) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return Enqueue(stream, [=] {
    auto* first = reinterpret_cast<uint32_t*>(Pointer(to));
    std::fill(first, first + words, value);
    return true;
  });
}

CUresult stream_create(CUstream* stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(new FakeStream);
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream stream) {
  delete Get(stream);
  return CUDA_SUCCESS;
}
CUresult stream_query(CUstream stream) {
  const std::lock_guard lock(mutex);
  LetGo(Get(stream));
  return Pump(Get(stream)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult stream_synchronize(CUstream stream) {
  CUresult result;
  while ((result = stream_query(stream)) == CUDA_ERROR_NOT_READY) {
  }
  return result;
}
CUresult stream_write_value64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  TakeTime(5);
  return Enqueue(stream, [=] {
    std::atomic_ref(*reinterpret_cast<uint64_t*>(Pointer(address))).store(value);
    return true;
  });
}
CUresult stream_wait_value64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  return Enqueue(stream, [=] {
    return FakeDevice::faults().waits_pass ||
           std::atomic_ref(*reinterpret_cast<uint64_t*>(Pointer(address))).load() >= value;
  });
}
CUresult event_create(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new FakeEvent);
  return CUDA_SUCCESS;
}
CUresult event_destroy(CUevent event) {
  delete reinterpret_cast<FakeEvent*>(event);
  return CUDA_SUCCESS;
}
CUresult event_record(CUevent event, CUstream stream) {
  reinterpret_cast<FakeEvent*>(event)->stream = Get(stream);
  return CUDA_SUCCESS;
}
CUresult event_synchronize(CUevent event) {
  return stream_synchronize(
      reinterpret_cast<CUstream>(reinterpret_cast<FakeEvent*>(event)->stream));
}

CUresult mem_get_allocation_granularity(size_t* bytes, const CUmemAllocationProp*,
                                        CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}
CUresult mem_create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                    unsigned long long) {
  TakeTime(120);
  const std::lock_guard lock(mutex);
  if (FakeDevice::faults().create_needs_context && !FakeDevice::HasContext()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = next_handle++;
  handles[*handle] = FakeDevice::Allocate(bytes);
  return CUDA_SUCCESS;
}
CUresult mem_release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex);
  const auto found = handles.find(handle);
  if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  close(found->second);
  handles.erase(found);
  return CUDA_SUCCESS;
}
CUresult mem_export(void* fd, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                    unsigned long long) {
  const std::lock_guard lock(mutex);
  int exported;
  if (FakeDevice::faults().descriptor_hangs_up) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    close(ends[1]);
    exported = ends[0];
  } else {
    exported = fcntl(handles.at(handle), F_DUPFD_CLOEXEC, 0);
  }
  std::memcpy(fd, &exported, sizeof(exported));
  return CUDA_SUCCESS;
}
CUresult mem_import(CUmemGenericAllocationHandle* handle, void* number, CUmemAllocationHandleType) {
  const std::lock_guard lock(mutex);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(number));
  const bool alive = FakeDevice::IsAlive(fd);
  if (!alive && !FakeDevice::faults().memory_dies_with_exporter) return CUDA_ERROR_INVALID_VALUE;
  *handle = next_handle++;
  // An import of dead memory succeeds, but with other contents.
  handles[*handle] = alive ? fcntl(fd, F_DUPFD_CLOEXEC, 0)
                           : FakeDevice::Allocate(static_cast<uint64_t>(lseek(fd, 0, SEEK_END)));
  return CUDA_SUCCESS;
}
CUresult mem_address_reserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  *address =
      Address(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return CUDA_SUCCESS;
}
CUresult mem_address_free(CUdeviceptr address, size_t bytes) {
  munmap(Pointer(address), bytes);
  return CUDA_SUCCESS;
}
CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long) {
  const std::lock_guard lock(mutex);
  if (offset != 0 && !FakeDevice::faults().offset_maps) return CUDA_ERROR_INVALID_VALUE;
  if (mmap(Pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handles.at(handle),
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ranges[address] = {bytes, false, -1};
  return CUDA_SUCCESS;
}
CUresult mem_unmap(CUdeviceptr address, size_t bytes) {
  const std::lock_guard lock(mutex);
  ranges.erase(address);
  mmap(Pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}
CUresult mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t) {
  const std::lock_guard lock(mutex);
  const bool writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
                        FakeDevice::faults().read_only_is_writable;
  ranges.at(address).writable = writable;
  mprotect(Pointer(address), bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  return CUDA_SUCCESS;
}

CUresult module_load_data(CUmodule* module, const void* text) {
  *module = reinterpret_cast<CUmodule>(&default_stream);
  return std::strstr(static_cast<const char*>(text), ".version") ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}
const char* const kKernels[] = {"spin", "copy", "count", "multiply"};
CUresult module_get_function(CUfunction* function, CUmodule, const char* name) {
  for (const char* const& kernel : kKernels) {
    if (std::strcmp(kernel, name) == 0) {
      *function = reinterpret_cast<CUfunction>(const_cast<char**>(&kernel));
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult launch_kernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, unsigned, CUstream stream, void** arguments, void**) {
  const std::string name = *reinterpret_cast<const char* const*>(function);
  const auto at = [&](int i) { return *static_cast<CUdeviceptr*>(arguments[i]); };
  if (name == "copy") return memcpy_dtod_async(at(0), at(1), at(2) * 16, stream);
  if (name != "count") return Enqueue(stream, [] { return true; });
  const auto* first = reinterpret_cast<const uint32_t*>(Pointer(at(0)));
  const uint64_t words = at(1);
  const uint32_t value = *static_cast<uint32_t*>(arguments[2]);
  auto* out = reinterpret_cast<uint64_t*>(Pointer(at(3)));
  return Enqueue(stream, [=] {
    *out += words - static_cast<uint64_t>(std::count(first, first + words, value));
    return true;
  });
}
CUresult launch_host_func(CUstream stream, CUhostFn function, void* data) {
  return Enqueue(stream, [=] {
    function(data);
    return true;
  });
}
CUresult get_error_name(CUresult result, const char** name) {
  *name = result == CUDA_SUCCESS                 ? "CUDA_SUCCESS"
          : result == CUDA_ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
          : result == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
          : result == CUDA_ERROR_NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
                                                 : "another error";
  return CUDA_SUCCESS;
}

// The functions that the probes call. The rest of the table stays empty.
#define GEMINID_FAKED(X)                                                                          \
  X(init)                                                                                         \
  X(driver_get_version) X(get_error_name) X(device_get) X(device_get_name) X(device_total_mem)    \
      X(device_get_attribute) X(device_get_pci_bus_id) X(primary_ctx_retain) X(ctx_set_current)   \
          X(ctx_synchronize) X(mem_get_info) X(mem_alloc) X(mem_free) X(mem_host_alloc)           \
              X(mem_free_host) X(mem_host_register) X(mem_host_unregister)                        \
                  X(mem_host_get_device_pointer) X(memcpy_htod_async) X(memcpy_dtoh_async)        \
                      X(memcpy_dtod_async) X(memset_d32_async) X(stream_create) X(stream_destroy) \
                          X(stream_synchronize) X(stream_query) X(stream_write_value64)           \
                              X(stream_wait_value64) X(event_create) X(event_destroy)             \
                                  X(event_record) X(event_synchronize)                            \
                                      X(mem_get_allocation_granularity) X(mem_create)             \
                                          X(mem_release) X(mem_export) X(mem_import)              \
                                              X(mem_address_reserve) X(mem_address_free)          \
                                                  X(mem_map) X(mem_unmap) X(mem_set_access)       \
                                                      X(module_load_data) X(module_get_function)  \
                                                          X(launch_kernel) X(launch_host_func)

void SetFunctions(gpu::DriverApi* driver) {
#define GEMINID_SET(member) driver->member = member;
  GEMINID_FAKED(GEMINID_SET)
#undef GEMINID_SET
}

}  // namespace

gpu::DriverApi FakeDriver(const Faults& faults) {
  FakeDevice::Reset(faults);
  gpu::DriverApi driver;
  SetFunctions(&driver);
  return driver;
}

}  // namespace geminid::gpu_verify
