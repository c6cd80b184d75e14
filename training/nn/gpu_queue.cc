#include "training/nn/gpu_queue.h"

#include <cstdint>
#include <cstring>

#include "base/status_macros.h"
#include "gpu/driver_calls.h"

namespace geminid::trainer {
namespace {

constexpr double kSecondsPerMillisecond = 1e-3;

CUdeviceptr Address(const void* place) { return reinterpret_cast<uintptr_t>(place); }

// A time that a stream records.
class TimingEvent {
 public:
  explicit TimingEvent(device::CudaContext& context) : context_(context) {}
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  ~TimingEvent() {
    if (event_ != nullptr) context_.api().event_destroy(event_);
  }

  absl::Status Record(CUstream stream) {
    GEMINID_RETURN_IF_ERROR(
        context_.Check(context_.api().event_create(&event_, CU_EVENT_DEFAULT), "cuEventCreate"));
    return context_.Check(context_.api().event_record(event_, stream), "cuEventRecord");
  }
  CUevent get() const { return event_; }

 private:
  device::CudaContext& context_;
  CUevent event_ = nullptr;
};

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
  const gpu::DriverCall call;
  if (bytes == 0) return absl::OkStatus();
  return context_->Check(context_->api().memset_d8_async(Address(to), 0, bytes, stream_),
                         "cuMemsetD8Async");
}

absl::Status GpuQueue::Copy(const void* from, size_t bytes, void* to) {
  const gpu::DriverCall call;
  if (bytes == 0) return absl::OkStatus();
  return context_->Check(
      context_->api().memcpy_dtod_async(Address(to), Address(from), bytes, stream_),
      "cuMemcpyDtoDAsync");
}

absl::Status GpuQueue::Upload(const void* from, size_t bytes, void* to) {
  const gpu::DriverCall call;
  GEMINID_ASSIGN_OR_RETURN(std::byte* const block, context_->TakeStaging(bytes));
  in_flight_.push_back(block);
  std::memcpy(block, from, bytes);
  return context_->Check(context_->api().memcpy_htod_async(Address(to), block, bytes, stream_),
                         "cuMemcpyHtoDAsync");
}

absl::Status GpuQueue::Download(const void* from, size_t bytes, void* to) {
  const gpu::DriverCall call;
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

absl::StatusOr<double> GpuQueue::SecondsOf(const std::function<absl::Status()>& work) {
  TimingEvent begin(*context_), end(*context_);
  GEMINID_RETURN_IF_ERROR(begin.Record(stream_));
  GEMINID_RETURN_IF_ERROR(work());
  GEMINID_RETURN_IF_ERROR(end.Record(stream_));
  const gpu::DriverCall call;
  const gpu::DriverApi& api = context_->api();
  GEMINID_RETURN_IF_ERROR(context_->Check(api.event_synchronize(end.get()), "cuEventSynchronize"));
  float milliseconds = 0;
  GEMINID_RETURN_IF_ERROR(context_->Check(
      api.event_elapsed_time(&milliseconds, begin.get(), end.get()), "cuEventElapsedTime"));
  return static_cast<double>(milliseconds) * kSecondsPerMillisecond;
}

absl::StatusOr<double> GpuQueue::SecondsOfUpload(size_t bytes, void* to) {
  GEMINID_ASSIGN_OR_RETURN(std::byte* const block, context_->TakeStaging(bytes));
  const absl::StatusOr<double> seconds = SecondsOf([&] {
    return context_->Check(context_->api().memcpy_htod_async(Address(to), block, bytes, stream_),
                           "cuMemcpyHtoDAsync");
  });
  // After an error a copy may still read the block.
  if (seconds.ok()) context_->ReturnStaging(block);
  return seconds;
}

}  // namespace geminid::trainer
