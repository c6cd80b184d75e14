#include "tools/trainer/gpu_queue.h"

#include <cstdint>
#include <cstring>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

CUdeviceptr Address(const void* place) { return reinterpret_cast<uintptr_t>(place); }

}  // namespace

absl::StatusOr<std::unique_ptr<GpuQueue>> GpuQueue::Create(const std::string& uuid) {
  GEMINID_ASSIGN_OR_RETURN(std::shared_ptr<device::CudaContext> context,
                           device::CudaContext::Create(uuid));
  std::unique_ptr<GpuQueue> queue(new GpuQueue(std::move(context)));
  const gpu::DriverApi& api = queue->context_->api();
  GEMINID_RETURN_IF_ERROR(queue->context_->Check(
      api.stream_create(&queue->stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  return queue;
}

GpuQueue::~GpuQueue() {
  if (stream_ != nullptr) context_->api().stream_destroy(stream_);
}

absl::StatusOr<int> GpuQueue::DriverVersion() const {
  int version = 0;
  GEMINID_RETURN_IF_ERROR(
      context_->Check(context_->api().driver_get_version(&version), "cuDriverGetVersion"));
  return version;
}

absl::Status GpuQueue::Zero(void* to, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return context_->Check(context_->api().memset_d8_async(Address(to), 0, bytes, stream_),
                         "cuMemsetD8Async");
}

absl::Status GpuQueue::Copy(const void* from, size_t bytes, void* to) {
  if (bytes == 0) return absl::OkStatus();
  return context_->Check(
      context_->api().memcpy_dtod_async(Address(to), Address(from), bytes, stream_),
      "cuMemcpyDtoDAsync");
}

absl::Status GpuQueue::Upload(const void* from, size_t bytes, void* to) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const block, context_->TakeStaging(bytes));
  in_flight_.push_back(block);
  std::memcpy(block, from, bytes);
  return context_->Check(context_->api().memcpy_htod_async(Address(to), block, bytes, stream_),
                         "cuMemcpyHtoDAsync");
}

absl::Status GpuQueue::Download(const void* from, size_t bytes, void* to) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const block, context_->TakeStaging(bytes));
  in_flight_.push_back(block);
  const gpu::DriverApi& api = context_->api();
  GEMINID_RETURN_IF_ERROR(context_->Check(
      api.memcpy_dtoh_async(block, Address(from), bytes, stream_), "cuMemcpyDtoHAsync"));
  GEMINID_RETURN_IF_ERROR(context_->Check(api.stream_synchronize(stream_), "cuStreamSynchronize"));
  std::memcpy(to, block, bytes);
  for (std::byte* const done : in_flight_) context_->ReturnStaging(done);
  in_flight_.clear();
  return absl::OkStatus();
}

}  // namespace geminid::trainer
