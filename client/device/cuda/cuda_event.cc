#include "client/device/cuda/cuda_event.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/deadline.h"

namespace geminid::device {
namespace {

using base::Deadline;
using std::chrono::microseconds;

// An event is polled ever less often: short waits end soon, and long ones cost little.
constexpr microseconds kFirstPause{5};
constexpr microseconds kLongestPause{200};

StreamWord WithNextValue(StreamWord word) {
  ++word.last;
  return word;
}

}  // namespace

void HostProgress::Advance() {
  const std::lock_guard lock(mutex_);
  ++done_;
  changed_.notify_all();
}

bool HostProgress::Reached(uint64_t works) const {
  const std::lock_guard lock(mutex_);
  return done_ >= works;
}

bool HostProgress::WaitFor(uint64_t works, absl::Duration timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, Deadline::In(timeout).time(), [&] { return done_ >= works; });
}

CudaEvent::CudaEvent(std::shared_ptr<CudaContext> context, CUevent event,
                     std::shared_ptr<HostProgress> progress, uint64_t works)
    : context_(std::move(context)), event_(event), progress_(std::move(progress)), works_(works) {}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) context_->ReturnEvent(event_);
}

bool CudaEvent::DeviceIsThere() const {
  if (event_ == nullptr || reached_.load(std::memory_order_acquire)) return true;
  if (!context_->IsReached(event_)) return false;
  reached_.store(true, std::memory_order_release);
  return true;
}

bool CudaEvent::ready() const { return DeviceIsThere() && progress_->Reached(works_); }

bool CudaEvent::WaitFor(absl::Duration timeout) const {
  const Deadline deadline = Deadline::In(timeout);
  for (microseconds pause = kFirstPause; !DeviceIsThere();
       pause = std::min(2 * pause, kLongestPause)) {
    if (deadline.Passed()) return false;
    std::this_thread::sleep_for(pause);
  }
  return progress_->WaitFor(works_, absl::FromChrono(deadline.Left()));
}

CudaGate::CudaGate(std::shared_ptr<CudaContext> context, StreamWord word)
    : context_(std::move(context)), word_(WithNextValue(word)) {}

CudaGate::~CudaGate() {
  // If the gate was never opened, a stream may still wait, so its word is not reused.
  if (open_ && word_.host != nullptr) context_->ReturnWord(word_);
}

void CudaGate::Open() {
  const std::lock_guard lock(mutex_);
  if (open_) return;
  if (word_.host != nullptr) word_.host->store(word_.last, std::memory_order_release);
  open_ = true;
  changed_.notify_all();
}

bool CudaGate::ready() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

bool CudaGate::WaitFor(absl::Duration timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, Deadline::In(timeout).time(), [this] { return open_; });
}

}  // namespace geminid::device
