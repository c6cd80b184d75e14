// Copies and memsets, on streams.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/gpu/double/calls.h"
#include "tests/gpu/double/memory.h"
#include "tests/gpu/double/node_file.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double::calls {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// One end of a copy.
struct Place {
  bool on_device = false;
  uint64_t address = 0;

  void* pointer() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }
};
Place OnDevice(CUdeviceptr address) { return {true, address}; }
Place OnHost(const void* data) { return {false, reinterpret_cast<uintptr_t>(data)}; }
// Chooses by the address, as the driver does.
Place Anywhere(CUdeviceptr address) { return {DeviceMemory::Get().IsReserved(address), address}; }

struct CopyTask {
  Place to, from;
  uint64_t bytes = 0;
  std::shared_ptr<std::vector<std::byte>> staged;  // what pageable memory held at the call
};

bool IsPageable(const Place& place, uint64_t bytes) {
  return !place.on_device && !HostMemory::Get().IsPinned(place.pointer(), bytes);
}

// Whether a place can be an end of a copy at all; the device checks the access rights of a
// mapping.
bool IsValid(const Place& place, uint64_t bytes) {
  return place.on_device ? DeviceMemory::Get().IsMapped(place.address, bytes)
                         : !DeviceMemory::Get().IsReserved(place.address);
}

std::byte* Reach(const Place& place, uint64_t bytes, Access access) {
  return place.on_device ? DeviceMemory::Get().Mirror(place.address, bytes, access)
                         : static_cast<std::byte*>(place.pointer());
}

// The copy engine of a direction, at the speed that the node sets.
void CopyOverLink(Context* context, bool to_device, std::byte* to, const std::byte* from,
                  uint64_t bytes) {
  const std::lock_guard lock(context->link(to_device));
  DeviceState& device = ThisNode().device[context->device()];
  if (!to_device) device.bytes_to_host += bytes;
  const uint64_t rate = device.copy_bytes_per_second;
  const auto start = steady_clock::now();
  std::memcpy(to, from, bytes);
  uint64_t ns = device.copy_latency_ns;
  if (rate > 0) ns += static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / rate);
  if (ns > 0) std::this_thread::sleep_until(start + nanoseconds(ns));
}

void RunCopy(Context* context, const CopyTask& task) {
  std::byte* const to = Reach(task.to, task.bytes, Access::kReadWrite);
  const std::byte* const from =
      task.staged != nullptr ? task.staged->data() : Reach(task.from, task.bytes, Access::kRead);
  if (to == nullptr || from == nullptr) {
    context->Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  } else if (task.to.on_device != task.from.on_device) {
    CopyOverLink(context, task.to.on_device, to, from, task.bytes);
  } else {
    std::memmove(to, from, task.bytes);
  }
}

CUresult Prepare(CopyTask* task) {
  if (!IsValid(task->to, task->bytes) || !IsValid(task->from, task->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (IsPageable(task->from, task->bytes)) {
    const auto* const data = static_cast<const std::byte*>(task->from.pointer());
    task->staged = std::make_shared<std::vector<std::byte>>(data, data + task->bytes);
  }
  return CUDA_SUCCESS;
}

// Returns when queued or, for writes to pageable memory, when done, like the driver.
CUresult Queue(std::vector<CopyTask> tasks, CUstream handle) {
  Context* const context = CurrentContext();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool waits = std::any_of(tasks.begin(), tasks.end(), [](const CopyTask& task) {
    return IsPageable(task.to, task.bytes);
  });
  const uint64_t end = context->Enqueue(stream, [context, tasks = std::move(tasks)] {
    for (const CopyTask& task : tasks) {
      if (!context->failed()) RunCopy(context, task);
    }
  });
  if (!waits) return CUDA_SUCCESS;
  stream->Wait(end);
  return context->error();
}

CUresult Copy(Place to, Place from, size_t bytes, CUstream stream) {
  if (bytes == 0) return CUDA_SUCCESS;
  CopyTask task{to, from, bytes, nullptr};
  if (const CUresult result = Prepare(&task); result != CUDA_SUCCESS) return result;
  return Queue({task}, stream);
}

template <typename Word>
CUresult Set(CUdeviceptr to, Word value, size_t count, CUstream handle) {
  Context* const context = CurrentContext();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == 0) return CUDA_SUCCESS;
  const Place place = Anywhere(to);
  if (to % sizeof(Word) != 0 || !IsValid(place, count * sizeof(Word)) ||
      IsPageable(place, count * sizeof(Word))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  context->Enqueue(stream, [=] {
    auto* const words =
        reinterpret_cast<Word*>(Reach(place, count * sizeof(Word), Access::kReadWrite));
    if (words == nullptr) {
      context->Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    } else {
      std::fill(words, words + count, value);
    }
  });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult memcpy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(Anywhere(to), Anywhere(from), bytes, stream);
}
CUresult memcpy_htod_async(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Copy(OnDevice(to), OnHost(from), bytes, stream);
}
CUresult memcpy_dtoh_async(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(OnHost(to), OnDevice(from), bytes, stream);
}
CUresult memcpy_dtod_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(OnDevice(to), OnDevice(from), bytes, stream);
}

CUresult memcpy_batch_async(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first_of_attribute,
                            size_t attribute_count, size_t* failed, CUstream stream) {
  const bool is_legacy = reinterpret_cast<uintptr_t>(stream) <= 1;
  if (failed != nullptr) *failed = SIZE_MAX;
  if (is_legacy || to == nullptr || from == nullptr || bytes == nullptr || count == 0 ||
      attributes == nullptr || first_of_attribute == nullptr || attribute_count == 0 ||
      attribute_count > count || first_of_attribute[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 1; i < attribute_count; ++i) {
    if (first_of_attribute[i] <= first_of_attribute[i - 1]) return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CopyTask> tasks;
  for (size_t i = 0; i < count; ++i) {
    CopyTask task{Anywhere(to[i]), Anywhere(from[i]), bytes[i], nullptr};
    if (bytes[i] == 0 || Prepare(&task) != CUDA_SUCCESS) {
      if (failed != nullptr) *failed = i;
      return CUDA_ERROR_INVALID_VALUE;
    }
    tasks.push_back(std::move(task));
  }
  // The copies have no order. Running the last one first shows code that relies on an order.
  std::reverse(tasks.begin(), tasks.end());
  return Queue(std::move(tasks), stream);
}

CUresult memset_d8_async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return Set<unsigned char>(to, value, count, stream);
}
CUresult memset_d32_async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return Set<unsigned>(to, value, count, stream);
}

}  // namespace geminid::gpu_double::calls
