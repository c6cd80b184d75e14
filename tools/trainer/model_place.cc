#include "tools/trainer/model_place.h"

#include "base/status_macros.h"
#include "tools/trainer/gpu_kernels.h"

namespace geminid::trainer {

absl::StatusOr<std::unique_ptr<ModelPlace>> ModelPlace::Find(const Session& session) {
  std::unique_ptr<ModelPlace> place(new ModelPlace);
  const DeviceDescription& device = session.device_description();
  if (device.kind != DeviceKind::kCuda) return place;
  GEMINID_ASSIGN_OR_RETURN(place->queue_, GpuQueue::Create(device.uuid));
  place->gpu_kernels_.emplace(GpuKernels(place->queue_.get()));
  return place;
}

std::unique_ptr<ParameterSource> ModelPlace::Source(zero::Engine* engine,
                                                    const Session* session) const {
  return on_gpu() ? MakeStreamSource(engine, queue_->handle()) : MakeEngineSource(engine, session);
}

}  // namespace geminid::trainer
