// The driver's stream on which a rank's model queues its kernels and copies.
#ifndef GEMINID_TRAINING_NN_GPU_QUEUE_H_
#define GEMINID_TRAINING_NN_GPU_QUEUE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/device/cuda/cuda_context.h"
#include "geminid/stream.h"

namespace geminid::trainer {

// One thread creates, uses and destroys the queue. The GPU is that thread's current one meanwhile.
class GpuQueue {
 public:
  // Creates the queue of the GPU with this UUID.
  static absl::StatusOr<std::unique_ptr<GpuQueue>> Create(const std::string& uuid);
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;
  ~GpuQueue();  // the caller has waited for all queued work

  CUstream stream() const { return stream_; }
  StreamHandle handle() const { return {stream_}; }
  absl::StatusOr<int> DriverVersion() const;  // as cuDriverGetVersion returns it

  // Queue work. `to`, and `from` in Copy, are on the device. Upload has read `from` when it
  // returns.
  absl::Status Zero(void* to, size_t bytes);
  absl::Status Copy(const void* from, size_t bytes, void* to);
  absl::Status Upload(const void* from, size_t bytes, void* to);

  // Waits for all queued work. Its errors are those of the device and may come from earlier calls.
  absl::Status Download(const void* from, size_t bytes, void* to);

  // Waits, then returns device-clock times: of the work that `work` queues here, and of a copy from
  // page-locked memory to the device.
  absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work);
  absl::StatusOr<double> SecondsOfUpload(size_t bytes, void* to);

 private:
  explicit GpuQueue(std::shared_ptr<device::CudaContext> context)
      : context_(std::move(context)), current_(*context_) {}

  const std::shared_ptr<device::CudaContext> context_;
  const device::CudaContext::Current current_;
  CUstream stream_ = nullptr;
  // Page-locked memory from which copies to the device may still read.
  std::vector<std::byte*> in_flight_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_QUEUE_H_
