// Streams, events and the work of streams other than copies.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/double/calls.h"
#include "tests/gpu/double/memory.h"
#include "tests/gpu/double/node_file.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double::calls {
namespace {

using std::chrono::steady_clock;

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;

class Events {
 public:
  static Events& Get() {
    static auto* const events = new Events;
    return *events;
  }
  CUevent Add(unsigned flags) {
    auto event = std::make_shared<Event>();
    event->flags = flags;
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    return reinterpret_cast<CUevent>(event.get());
  }
  std::shared_ptr<Event> Find(CUevent handle) {
    const std::lock_guard lock(mutex_);
    for (const auto& event : events_) {
      if (reinterpret_cast<CUevent>(event.get()) == handle) return event;
    }
    return nullptr;
  }
  bool Remove(CUevent handle) {
    const std::lock_guard lock(mutex_);
    return std::erase_if(events_, [&](const auto& event) {
             return reinterpret_cast<CUevent>(event.get()) == handle;
           }) > 0;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Event>> events_;
};

// The point of the last record; empty if there was none.
Point PointOf(Event* event) {
  const std::lock_guard lock(event->mutex);
  return event->point.value_or(Point{});
}

// The word at a device address, if streams may access it; else null.
std::atomic<uint64_t>* WordAt(CUdeviceptr address) {
  if (address % sizeof(uint64_t) != 0) return nullptr;
  auto* const host = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  if (HostMemory::Get().IsPinned(host, sizeof(uint64_t))) {
    return static_cast<std::atomic<uint64_t>*>(host);
  }
  return reinterpret_cast<std::atomic<uint64_t>*>(
      DeviceMemory::Get().Mirror(address, sizeof(uint64_t), Access::kReadWrite));
}

CUresult Queue(CUstream handle, std::function<void()> operation) {
  Context* const context = CurrentContext();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context->Enqueue(stream, std::move(operation));
  return CUDA_SUCCESS;
}

// Functions of different streams may wait for each other in a real driver, so they do here.
std::mutex& HostFunctionLock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

}  // namespace

CUresult stream_create(CUstream* stream, unsigned flags) {
  return stream_create_with_priority(stream, flags, 0);
}
CUresult stream_create_with_priority(CUstream* stream, unsigned flags, int) {
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const bool blocking = flags != CU_STREAM_NON_BLOCKING;
  *stream = reinterpret_cast<CUstream>(CurrentContext()->MakeStream(blocking).get());
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream stream) {
  return CurrentContext()->Destroy(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult stream_query(CUstream handle) {
  Context* const context = CurrentContext();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool done = stream->IsDone(stream->queued());
  if (const CUresult error = context->error(); error != CUDA_SUCCESS) return error;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult stream_synchronize(CUstream handle) {
  Context* const context = CurrentContext();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->Wait(stream->queued());
  return context->error();
}
CUresult stream_wait_event(CUstream stream, CUevent handle, unsigned flags) {
  const std::shared_ptr<Event> event = Events::Get().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Queue(stream, [point = PointOf(event.get())] { point.Wait(); });
}
CUresult stream_write_value64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  if (ThisNode().no_stream_memory_operations) return CUDA_ERROR_NOT_SUPPORTED;
  std::atomic<uint64_t>* const word = WordAt(address);
  if (word == nullptr || flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return Queue(stream, [=] { word->store(value, std::memory_order_release); });
}
CUresult stream_wait_value64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  if (ThisNode().no_stream_memory_operations) return CUDA_ERROR_NOT_SUPPORTED;
  std::atomic<uint64_t>* const word = WordAt(address);
  if (word == nullptr || flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_INVALID_VALUE;
  Context* const context = CurrentContext();
  return Queue(stream, [=] {
    // A signed difference, as documented: the words may wrap around.
    while (static_cast<int64_t>(word->load(std::memory_order_acquire) - value) < 0 &&
           !context->failed()) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
}
CUresult launch_host_func(CUstream stream, CUhostFn function, void* data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Queue(stream, [=] {
    const std::lock_guard lock(HostFunctionLock());
    InHostFunction() = true;
    function(data);
    InHostFunction() = false;
  });
}

CUresult event_create(CUevent* event, unsigned flags) {
  if (event == nullptr || (flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  *event = Events::Get().Add(flags);
  return CUDA_SUCCESS;
}
CUresult event_destroy(CUevent event) {
  return Events::Get().Remove(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult event_record(CUevent handle, CUstream stream_handle) {
  Context* const context = CurrentContext();
  const std::shared_ptr<Event> event = Events::Get().Find(handle);
  const std::shared_ptr<Stream> stream = context->Find(stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(event->mutex);
  const auto reached = std::make_shared<steady_clock::time_point>();
  const uint64_t end = context->Enqueue(stream, [reached] { *reached = steady_clock::now(); });
  event->point = Point{stream, end};
  event->reached = reached;
  return CUDA_SUCCESS;
}
CUresult event_query(CUevent handle) {
  const std::shared_ptr<Event> event = Events::Get().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return PointOf(event.get()).IsDone() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult event_synchronize(CUevent handle) {
  const std::shared_ptr<Event> event = Events::Get().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  PointOf(event.get()).Wait();
  return CurrentContext()->error();
}
CUresult event_elapsed_time(float* milliseconds, CUevent from_handle, CUevent to_handle) {
  const std::shared_ptr<Event> from = Events::Get().Find(from_handle);
  const std::shared_ptr<Event> to = Events::Get().Find(to_handle);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (Event* event : {from.get(), to.get()}) {
    const Point point = PointOf(event);
    if (point.stream == nullptr || (event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!point.IsDone()) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*to->reached - *from->reached).count();
  return CUDA_SUCCESS;
}

}  // namespace geminid::gpu_double::calls
