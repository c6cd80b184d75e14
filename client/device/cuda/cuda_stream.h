// A stream of a GPU: the driver's stream, and a thread for work that is queued for the host.
//
// Work goes to the driver at the call. Only small copies wait, for the stream's thread or for the
// next call, and are submitted as one batch. The thread does work for the host when the device
// reaches it. Meanwhile the device waits for a word in host memory.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_STREAM_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_STREAM_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/device/cuda/cuda_arena.h"
#include "client/device/cuda/cuda_context.h"
#include "client/device/cuda/cuda_event.h"
#include "client/device/cuda/host_registry.h"
#include "client/device/device.h"
#include "kernels/runtime/common/status.h"

namespace geminid::device {

// Copies of at most so many bytes are batched: a call for each would take longer than the copy. A
// call takes 2-4 us; 64 KiB at 50 GB/s take 1.3 us.
inline constexpr uint64_t kSmallCopyBytes = 64 << 10;
inline constexpr size_t kMostCopiesOfABatch = 64;

// What all streams of a device share; outlives them.
struct CudaMemory {
  std::shared_ptr<CudaContext> context;
  CudaArena* arena = nullptr;
  HostRegistry* registry = nullptr;
  bool completes_by_events = false;  // see CudaDeviceOptions

  // In the arena, or allocated on the GPU by the trainer's framework.
  bool IsOnDevice(const void* place) const {
    return arena->Contains(place) || context->IsDeviceMemory(place);
  }
};

class CudaStream final : public CopyStream {
 public:
  enum class Ownership { kOwned, kBorrowed };
  // `stream` is the driver's. `name` (at most 15 characters) is that of the thread, which starts
  // with the first work for it. A borrowed stream must live until its work is complete.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Wrap(const CudaMemory& memory, CUstream stream,
                                                          Ownership ownership,
                                                          const std::string& name);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override;

  void Submit(Copy copy) override;
  void Enqueue(std::function<void()> work) override;
  void CallBack(std::function<void()> work) override;
  std::shared_ptr<const Event> Record() override;
  void WaitFor(std::shared_ptr<const Event> event) override;

  // For operations. `call` queues one item on the driver's stream. If it fails, the device has
  // failed, as after CudaContext::Fail.
  void Queue(const char* name,
             const std::function<CUresult(const gpu::DriverApi&, CUstream)>& call);
  // The same for a kernel; the caller handles a refusal.
  kernels::Status Launch(const std::function<kernels::Status(CUstream)>& launch);
  // Copies between any two places in device or host memory.
  void CopyAny(std::byte* to, const std::byte* from, uint64_t bytes);

 private:
  struct Work {
    CUevent event = nullptr;  // null: reached already
    std::function<void()> run;
  };

  CudaStream(const CudaMemory& memory, CUstream stream, Ownership ownership, std::string name,
             StreamWord word);
  CudaContext& context() const { return *memory_.context; }

  // Call with order_ held:
  void Flush();
  void Batch(std::vector<Copy>* copies);
  absl::Status CopyPart(std::byte* to, const std::byte* from, uint64_t bytes);
  absl::Status CopyLink(std::byte* to, const std::byte* from, uint64_t bytes, bool to_device);
  absl::Status CopyStaged(std::byte* to, const std::byte* from, uint64_t bytes, bool to_device);
  void Complete(Copy copy, const absl::Status& queued);
  bool IsSmall(const Copy& copy) const;
  bool Conflicts(const Copy& copy) const;
  void HoldFor(std::function<void()> work);
  CUevent RecordEvent();
  void AddWork(std::function<void()> run);

  void Run();
  void FlushFromThread();

  const CudaMemory memory_;
  const CUstream stream_;
  const Ownership ownership_;
  const std::string name_;
  const std::shared_ptr<HostProgress> progress_ = std::make_shared<HostProgress>();

  // Held while work is queued, so that the driver's stream and works_ have the same order. Never
  // held while waiting for the device.
  std::mutex order_;
  StreamWord word_;            // guarded by order_
  std::vector<Copy> pending_;  // guarded by order_
  uint64_t works_queued_ = 0;  // guarded by order_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> works_;    // guarded by mutex_
  bool has_pending_ = false;  // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::thread thread_;        // guarded by order_
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_STREAM_H_
