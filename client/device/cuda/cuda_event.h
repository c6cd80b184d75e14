// Events of a GPU: points in its streams, and gates that the host opens.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_EVENT_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_EVENT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/time/time.h"
#include "client/device/cuda/cuda_context.h"
#include "client/device/device.h"

namespace geminid::device {

// Counts a stream's completed work on the host: callbacks of copies, and Enqueue's functions.
// Shared by the stream and its events. Thread-safe.
class HostProgress {
 public:
  void Advance();
  bool Reached(uint64_t works) const;
  bool WaitFor(uint64_t works, absl::Duration timeout) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  uint64_t done_ = 0;  // guarded by mutex_
};

// The work that was queued on a stream before Record. Streams of the GPU wait only for its part on
// the device; the host waits for earlier callbacks too. On a lost device the event is ready.
class CudaEvent final : public Event {
 public:
  // Takes over `event`, which was recorded; null: the device has reached it.
  CudaEvent(std::shared_ptr<CudaContext> context, CUevent event,
            std::shared_ptr<HostProgress> progress, uint64_t works);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  bool ready() const override;
  bool WaitFor(absl::Duration timeout) const override;
  CUevent get() const { return event_; }

 private:
  bool DeviceIsThere() const;

  const std::shared_ptr<CudaContext> context_;
  const CUevent event_;
  const std::shared_ptr<HostProgress> progress_;
  const uint64_t works_;
  mutable std::atomic<bool> reached_ = false;
};

// Streams wait for the gate's word. Without a word, on a lost device, nothing waits.
class CudaGate final : public Gate {
 public:
  CudaGate(std::shared_ptr<CudaContext> context, StreamWord word);
  CudaGate(const CudaGate&) = delete;
  CudaGate& operator=(const CudaGate&) = delete;
  ~CudaGate() override;

  void Open() override;
  bool ready() const override;
  bool WaitFor(absl::Duration timeout) const override;

  CUdeviceptr address() const { return word_.device; }  // 0: there is no word
  uint64_t value() const { return word_.last; }

 private:
  const std::shared_ptr<CudaContext> context_;
  const StreamWord word_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = false;  // guarded by mutex_
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_EVENT_H_
