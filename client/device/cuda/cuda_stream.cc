#include "client/device/cuda/cuda_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "client/os/thread.h"

namespace geminid::device {
namespace {

using std::chrono::microseconds;

constexpr uint64_t kStagingBytes = 4 << 20;
constexpr microseconds kFirstPause{5};
constexpr microseconds kLongestPause{200};

CUdeviceptr Address(const void* place) { return reinterpret_cast<uintptr_t>(place); }

bool Overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
  return Address(a) < Address(b) + b_bytes && Address(b) < Address(a) + a_bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Wrap(const CudaMemory& memory,
                                                             CUstream stream, Ownership ownership,
                                                             const std::string& name) {
  GEMINID_ASSIGN_OR_RETURN(const StreamWord word, memory.context->TakeWord());
  return std::unique_ptr<CudaStream>(new CudaStream(memory, stream, ownership, name, word));
}

CudaStream::CudaStream(const CudaMemory& memory, CUstream stream, Ownership ownership,
                       std::string name, StreamWord word)
    : memory_(memory),
      stream_(stream),
      ownership_(ownership),
      name_(std::move(name)),
      word_(word) {}

CudaStream::~CudaStream() {
  uint64_t works;
  {
    const std::lock_guard order(order_);
    Flush();
    works = works_queued_;
  }
  // A borrowed stream may be gone by now, but then it has none of our work left.
  if (ownership_ == Ownership::kOwned) Record()->Wait();
  progress_->WaitFor(works, absl::InfiniteDuration());
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (ownership_ == Ownership::kOwned) {
    const CudaContext::Scope scope(context());
    context().api().stream_destroy(stream_);
  }
  context().ReturnWord(word_);
}

// --- queueing ------------------------------------------------------------------------------------

void CudaStream::Submit(Copy copy) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  if (IsSmall(copy)) {
    if (Conflicts(copy) || pending_.size() == kMostCopiesOfABatch) Flush();
    pending_.push_back(std::move(copy));
    FlushFromThread();
    return;
  }
  Flush();
  const absl::Status queued = CopyPart(copy.destination, copy.source, copy.bytes);
  Complete(std::move(copy), queued);
}

void CudaStream::Enqueue(std::function<void()> work) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  HoldFor(std::move(work));
}

std::shared_ptr<const Event> CudaStream::Record() {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  return std::make_shared<CudaEvent>(memory_.context, RecordEvent(), progress_, works_queued_);
}

void CudaStream::WaitFor(std::shared_ptr<const Event> event) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  const gpu::DriverApi& api = context().api();
  if (const auto* const point = dynamic_cast<const CudaEvent*>(event.get())) {
    if (point->get() == nullptr) return;
    context().Fail(
        context().Check(api.stream_wait_event(stream_, point->get(), 0), "cuStreamWaitEvent"));
  } else if (const auto* const gate = dynamic_cast<const CudaGate*>(event.get())) {
    if (gate->ready() || gate->address() == 0) return;
    context().Fail(context().Check(
        api.stream_wait_value64(stream_, gate->address(), gate->value(), CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64"));
  } else {
    HoldFor([event = std::move(event)] { event->Wait(); });
  }
}

void CudaStream::Queue(const char* name,
                       const std::function<CUresult(const gpu::DriverApi&, CUstream)>& call) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  context().Fail(context().Check(call(context().api(), stream_), name));
}

kernels::Status CudaStream::Launch(const std::function<kernels::Status(CUstream)>& launch) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  return launch(stream_);
}

void CudaStream::CopyAny(std::byte* to, const std::byte* from, uint64_t bytes) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  context().Fail(CopyPart(to, from, bytes));
}

void CudaStream::CallBack(std::function<void()> work) {
  const std::lock_guard order(order_);
  const CudaContext::Scope scope(context());
  Flush();
  AddWork(std::move(work));
}

// --- the driver's stream, with order_ held and the context current -------------------------------

// Null if the stream is idle: the driver gave no event, so this function has waited.
CUevent CudaStream::RecordEvent() {
  const gpu::DriverApi& api = context().api();
  absl::StatusOr<CUevent> event = context().TakeEvent();
  absl::Status status = event.status();
  if (event.ok()) {
    status = context().Check(api.event_record(*event, stream_), "cuEventRecord");
    if (status.ok()) return *event;
    context().ReturnEvent(*event);
  }
  context().Fail(status);
  if (!context().lost()) {
    context().Fail(context().Check(api.stream_synchronize(stream_), "cuStreamSynchronize"));
  }
  return nullptr;
}

void CudaStream::AddWork(std::function<void()> run) {
  CUevent event = RecordEvent();
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      PrepareThread(name_);
      Run();
    });
  }
  ++works_queued_;
  {
    const std::lock_guard lock(mutex_);
    works_.push_back({event, std::move(run)});
  }
  changed_.notify_all();
}

// The device waits until `work` has run.
void CudaStream::HoldFor(std::function<void()> work) {
  const uint64_t value = ++word_.last;
  AddWork([host = word_.host, value, work = std::move(work)] {
    work();
    host->store(value, std::memory_order_release);
  });
  context().Fail(context().Check(
      context().api().stream_wait_value64(stream_, word_.device, value, CU_STREAM_WAIT_VALUE_GEQ),
      "cuStreamWaitValue64"));
}

absl::Status CudaStream::CopyPart(std::byte* to, const std::byte* from, uint64_t bytes) {
  const bool to_device = memory_.IsOnDevice(to);
  const bool from_device = memory_.IsOnDevice(from);
  if (to_device != from_device) return CopyLink(to, from, bytes, to_device);
  if (!to_device) {
    HoldFor([=] { std::memcpy(to, from, bytes); });
    return absl::OkStatus();
  }
  return context().Check(
      context().api().memcpy_dtod_async(Address(to), Address(from), bytes, stream_),
      "cuMemcpyDtoDAsync");
}

absl::Status CudaStream::CopyLink(std::byte* to, const std::byte* from, uint64_t bytes,
                                  bool to_device) {
  const gpu::DriverApi& api = context().api();
  for (uint64_t at = 0; at < bytes;) {
    const void* const host = to_device ? from + at : to + at;
    const auto [length, registered] = memory_.registry->Find(host, bytes - at);
    if (!registered) {
      GEMINID_RETURN_IF_ERROR(CopyStaged(to + at, from + at, length, to_device));
    } else if (to_device) {
      GEMINID_RETURN_IF_ERROR(
          context().Check(api.memcpy_htod_async(Address(to + at), from + at, length, stream_),
                          "cuMemcpyHtoDAsync"));
    } else {
      GEMINID_RETURN_IF_ERROR(
          context().Check(api.memcpy_dtoh_async(to + at, Address(from + at), length, stream_),
                          "cuMemcpyDtoHAsync"));
    }
    at += length;
  }
  return absl::OkStatus();
}

// Through page-locked memory of the library: otherwise the driver's copy blocks its caller.
absl::Status CudaStream::CopyStaged(std::byte* to, const std::byte* from, uint64_t bytes,
                                    bool to_device) {
  const gpu::DriverApi& api = context().api();
  for (uint64_t at = 0; at < bytes; at += kStagingBytes) {
    const uint64_t length = std::min(kStagingBytes, bytes - at);
    GEMINID_ASSIGN_OR_RETURN(std::byte* const block, context().TakeStaging(length));
    absl::Status status;
    if (to_device) {
      HoldFor([block, from = from + at, length] { std::memcpy(block, from, length); });
      status = context().Check(api.memcpy_htod_async(Address(to + at), block, length, stream_),
                               "cuMemcpyHtoDAsync");
      AddWork([this, block] { context().ReturnStaging(block); });
    } else {
      status = context().Check(api.memcpy_dtoh_async(block, Address(from + at), length, stream_),
                               "cuMemcpyDtoHAsync");
      HoldFor([this, block, to = to + at, length] {
        std::memcpy(to, block, length);
        context().ReturnStaging(block);
      });
    }
    GEMINID_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

// The stream writes the completion word if it can reach it and is allowed to. Otherwise the thread
// does, when it finds the copy complete.
void CudaStream::Complete(Copy copy, const absl::Status& queued) {
  bool by_host = copy.completion != nullptr;
  const bool reachable = by_host && !memory_.completes_by_events &&
                         memory_.registry->Find(copy.completion, sizeof(uint64_t)).registered;
  if (queued.ok() && reachable) {
    CUdeviceptr address = 0;
    absl::Status status =
        context().Check(context().api().mem_host_get_device_pointer(&address, copy.completion, 0),
                        "cuMemHostGetDevicePointer");
    if (status.ok()) {
      status = context().Check(
          context().api().stream_write_value64(stream_, address, copy.completion_value,
                                               CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue64");
    }
    by_host = !status.ok();
  }
  if (!by_host && !copy.on_done) return;
  AddWork([this, by_host, queued, copy = std::move(copy)] {
    absl::Status status = queued;
    status.Update(context().status());
    if (by_host && status.ok()) {
      copy.completion->store(copy.completion_value, std::memory_order_release);
    }
    if (copy.on_done) copy.on_done(status);
  });
}

// --- batches -------------------------------------------------------------------------------------

bool CudaStream::IsSmall(const Copy& copy) const {
  const bool to_device = memory_.arena->Contains(copy.destination);
  if (copy.bytes > kSmallCopyBytes || to_device == memory_.arena->Contains(copy.source)) {
    return false;
  }
  const auto [length, registered] =
      memory_.registry->Find(to_device ? copy.source : copy.destination, copy.bytes);
  return registered && length == copy.bytes && copy.bytes > 0;
}

// Copies within a batch have no order among them.
bool CudaStream::Conflicts(const Copy& copy) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const Copy& other) {
    return Overlap(copy.destination, copy.bytes, other.destination, other.bytes) ||
           Overlap(copy.source, copy.bytes, other.destination, other.bytes) ||
           Overlap(copy.destination, copy.bytes, other.source, other.bytes);
  });
}

void CudaStream::Batch(std::vector<Copy>* copies) {
  std::vector<CUdeviceptr> to;
  std::vector<CUdeviceptr> from;
  std::vector<size_t> bytes;
  for (const Copy& copy : *copies) {
    to.push_back(Address(copy.destination));
    from.push_back(Address(copy.source));
    bytes.push_back(copy.bytes);
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0;
  size_t failed = 0;
  const absl::Status status = context().Check(
      context().api().memcpy_batch_async(to.data(), from.data(), bytes.data(), copies->size(),
                                         &attributes, &first, 1, &failed, stream_),
      "cuMemcpyBatchAsync");
  for (Copy& copy : *copies) Complete(std::move(copy), status);
}

void CudaStream::Flush() {
  if (pending_.empty()) return;
  const CudaContext::Scope scope(context());
  std::vector<Copy> copies = std::exchange(pending_, {});
  if (copies.size() > 1 && context().api().memcpy_batch_async != nullptr) {
    Batch(&copies);
    return;
  }
  for (Copy& copy : copies) {
    const absl::Status queued = CopyPart(copy.destination, copy.source, copy.bytes);
    Complete(std::move(copy), queued);
  }
}

void CudaStream::FlushFromThread() {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      PrepareThread(name_);
      Run();
    });
  }
  {
    const std::lock_guard lock(mutex_);
    has_pending_ = true;
  }
  changed_.notify_all();
}

// --- the thread ----------------------------------------------------------------------------------

void CudaStream::Run() {
  microseconds pause = kFirstPause;
  std::unique_lock lock(mutex_);
  while (true) {
    if (std::exchange(has_pending_, false)) {
      lock.unlock();
      {
        const std::lock_guard order(order_);
        Flush();
      }
      lock.lock();
    } else if (works_.empty()) {
      if (stopping_) return;
      changed_.wait(lock, [this] { return stopping_ || has_pending_ || !works_.empty(); });
      pause = kFirstPause;
    } else if (CUevent event = works_.front().event;
               event != nullptr && !context().IsReached(event)) {
      changed_.wait_for(lock, pause, [this] { return has_pending_; });
      pause = std::min(2 * pause, kLongestPause);
    } else {
      Work work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      work.run();
      if (work.event != nullptr) context().ReturnEvent(work.event);
      progress_->Advance();
      lock.lock();
      pause = kFirstPause;
    }
  }
}

}  // namespace geminid::device
