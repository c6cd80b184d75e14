#include "daemon/agent/gpu_faults.h"

namespace geminid::agent {
namespace {

using gpu::NvmlResult;

// Whether the library has the function, and the call succeeds.
template <typename Function, typename... Arguments>
bool Says(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == NvmlResult::kSuccess;
}

}  // namespace

GpuFaults::GpuFaults(const gpu::NvmlApi* nvml, const std::string& uuid) : nvml_(nvml) {
  FindGpu(uuid);
  if (gpu_ != nullptr) Watch();
}

GpuFaults::~GpuFaults() {
  if (events_ != nullptr) (void)Says(nvml_->event_set_free, events_);
}

void GpuFaults::FindGpu(const std::string& uuid) {
  gpu::NvmlDevice device = nullptr;
  if (!Says(nvml_->device_get_handle_by_uuid, uuid.c_str(), &device)) return;
  // Errors and events belong to the whole GPU, those of its instances too.
  if (!Says(nvml_->device_get_gpu_of_mig_device, device, &gpu_)) {
    gpu_ = device;
  } else if (!Says(nvml_->device_get_gpu_instance_id, device, &instance_)) {
    instance_ = gpu::kNvmlNoInstance;
  }
}

void GpuFaults::Watch() {
  if (nvml_->event_set_wait == nullptr || !Says(nvml_->event_set_create, &events_)) {
    events_ = nullptr;
  } else if (!Says(nvml_->device_register_events, gpu_, gpu::kNvmlXidEvents, events_)) {
    (void)Says(nvml_->event_set_free, events_);
    events_ = nullptr;
  }
}

bool GpuFaults::IsOurs(const gpu::NvmlEventData& event) const {
  return event.type == gpu::kNvmlXidEvents && event.data <= kLargestXid &&
         (event.gpu_instance == gpu::kNvmlNoInstance || instance_ == gpu::kNvmlNoInstance ||
          event.gpu_instance == instance_);
}

void GpuFaults::ReadErrors(int counter, uint32_t bit, uint64_t* errors, uint32_t* known) const {
  unsigned long long count = 0;
  if (!Says(nvml_->device_get_total_ecc_errors, gpu_, gpu::kNvmlUncorrectedErrors, counter,
            &count)) {
    return;
  }
  *errors = count;
  *known |= bit;
}

void GpuFaults::ReadXids(Faults* faults) {
  // Others' events count as well, so that one answer never takes long.
  for (uint32_t i = 0; i < kMostXids; ++i) {
    gpu::NvmlEventData event = {};
    if (!Says(nvml_->event_set_wait, events_, &event, 0U)) return;
    if (IsOurs(event)) faults->xid[faults->xids++] = static_cast<uint32_t>(event.data);
  }
}

Faults GpuFaults::Read() {
  Faults faults = {};
  if (gpu_ == nullptr) return faults;
  ReadErrors(gpu::kNvmlVolatileCounter, kVolatileErrors, &faults.volatile_errors, &faults.known);
  ReadErrors(gpu::kNvmlAggregateCounter, kAggregateErrors, &faults.aggregate_errors, &faults.known);
  int pages_pending = 0;
  if (Says(nvml_->device_get_retired_pages_pending_status, gpu_, &pages_pending)) {
    faults.known |= kRetiredPages;
    faults.retired_pages_pending = pages_pending != 0 ? 1 : 0;
  }
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned remap_pending = 0;
  unsigned remap_failed = 0;
  if (Says(nvml_->device_get_remapped_rows, gpu_, &corrected, &uncorrected, &remap_pending,
           &remap_failed)) {
    faults.known |= kRowRemaps;
    faults.row_remap_pending = remap_pending != 0 ? 1 : 0;
    faults.row_remap_failed = remap_failed != 0 ? 1 : 0;
  }
  if (events_ == nullptr) return faults;
  faults.known |= kXids;
  ReadXids(&faults);
  return faults;
}

}  // namespace geminid::agent
