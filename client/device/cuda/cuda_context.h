// One GPU as this process uses it: the driver, the device's primary context, and the first failure
// there.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_CONTEXT_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/driver.h"
#include "gpu/driver_calls.h"

namespace geminid::device {

// A word in page-locked host memory that streams write and wait for. Its values only grow, so a
// reused word satisfies older waits.
struct StreamWord {
  std::atomic<uint64_t>* host = nullptr;
  CUdeviceptr device = 0;
  uint64_t last = 0;  // the greatest value that a stream or the host was told to write
};

// Thread-safe. Shared by the device and by objects that may outlive it, such as events.
class CudaContext {
 public:
  // For the GPU with that UUID ("GPU-..." or "MIG-..."), or the first GPU if `uuid` is empty.
  // NOT_FOUND if this process sees no such GPU. UNIMPLEMENTED if the GPU lacks something that the
  // library needs.
  static absl::StatusOr<std::shared_ptr<CudaContext>> Create(const std::string& uuid);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  // While this object lives, the context is the thread's current one.
  class Current {
   public:
    explicit Current(const CudaContext& context);
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current();

   private:
    const gpu::DriverApi& api_;
    bool pushed_;
  };
  // The same, for uses of api() that return soon unless the driver hangs.
  class Scope {
   public:
    explicit Scope(const CudaContext& context) : current_(context) {}

   private:
    const gpu::DriverCall call_;
    const Current current_;
  };

  const gpu::DriverApi& api() const { return *api_; }
  CUdevice device() const { return device_; }
  CUcontext handle() const { return context_; }

  // The status of `call`'s result. After a sticky error (gpu::IsSticky) the device is lost.
  absl::Status Check(CUresult result, std::string_view call);
  // Records the device's failure; later ones do not replace it.
  void Fail(const absl::Status& status);
  absl::Status status() const;
  // No queued work will run any more.
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  // Whether the driver knows the address as GPU memory, whoever allocated it.
  bool IsDeviceMemory(const void* place) const;

  // Events without timing. A returned event may still have waiters: a wait refers to the record at
  // the time of its call.
  absl::StatusOr<CUevent> TakeEvent();
  void ReturnEvent(CUevent event);
  // Whether all work before the event's record has run. True on a lost device.
  bool IsReached(CUevent event);

  absl::StatusOr<StreamWord> TakeWord();
  void ReturnWord(const StreamWord& word);

  // Page-locked host memory of at least so many bytes, reused or from the driver.
  absl::StatusOr<std::byte*> TakeStaging(uint64_t bytes);
  void ReturnStaging(std::byte* block);

 private:
  CudaContext(const gpu::DriverApi* api, CUdevice device, CUcontext context)
      : api_(api), device_(device), context_(context) {}

  absl::StatusOr<void*> AllocateHost(uint64_t bytes);

  const gpu::DriverApi* const api_;
  const CUdevice device_;
  const CUcontext context_;
  std::atomic<bool> lost_ = false;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  absl::Status status_;
  std::vector<CUevent> events_;
  std::vector<StreamWord> words_;
  std::vector<void*> host_memory_;  // all that was allocated
  std::map<std::byte*, uint64_t> staging_bytes_;
  std::multimap<uint64_t, std::byte*> free_staging_;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_CONTEXT_H_
