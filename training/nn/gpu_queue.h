// The stream of the driver on which a rank's model queues its kernels and copies.
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

// Of one thread, which has the GPU as its current one meanwhile: it makes the queue, uses it and
// ends it.
class GpuQueue {
 public:
  // Of the GPU with that UUID.
  static absl::StatusOr<std::unique_ptr<GpuQueue>> Create(const std::string& uuid);
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;
  ~GpuQueue();  // what is queued has been waited for

  CUstream stream() const { return stream_; }
  StreamHandle handle() const { return {stream_}; }
  absl::StatusOr<int> DriverVersion() const;  // as cuDriverGetVersion has it

  // Queued, with `to`, and in Copy `from`, on the device. Upload has read `from` when it returns.
  absl::Status Zero(void* to, size_t bytes);
  absl::Status Copy(const void* from, size_t bytes, void* to);
  absl::Status Upload(const void* from, size_t bytes, void* to);

  // Waits for all that is queued. Errors are those of the device, whatever call they belong to.
  absl::Status Download(const void* from, size_t bytes, void* to);

  // By the device's clock, once all has run: what `work` queues here takes, and a copy to the
  // device from page-locked memory.
  absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work);
  absl::StatusOr<double> SecondsOfUpload(size_t bytes, void* to);

 private:
  explicit GpuQueue(std::shared_ptr<device::CudaContext> context)
      : context_(std::move(context)), current_(*context_) {}

  const std::shared_ptr<device::CudaContext> context_;
  const device::CudaContext::Current current_;
  CUstream stream_ = nullptr;
  std::vector<std::byte*> in_flight_;  // page-locked memory that copies to the device read
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_QUEUE_H_
