// Where a rank's model computes: on its device if that is a GPU, else on the host.
#ifndef GEMINID_TOOLS_TRAINER_MODEL_PLACE_H_
#define GEMINID_TOOLS_TRAINER_MODEL_PLACE_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tools/trainer/gpu_queue.h"
#include "tools/trainer/model_kernels.h"
#include "tools/trainer/parameter_source.h"

namespace geminid::trainer {

// Made, used and ended by the thread that the model runs on; outlives the engine.
class ModelPlace {
 public:
  // Of the session's device.
  static absl::StatusOr<std::unique_ptr<ModelPlace>> Find(const Session& session);

  bool on_gpu() const { return queue_ != nullptr; }
  GpuQueue* queue() const { return queue_.get(); }  // null: the host
  const ModelKernels& math() const { return gpu_kernels_ ? *gpu_kernels_ : HostKernels(); }
  // `engine` and `session` outlive it.
  std::unique_ptr<ParameterSource> Source(zero::Engine* engine, const Session* session) const;

 private:
  ModelPlace() = default;
  std::unique_ptr<GpuQueue> queue_;  // null: the host
  std::optional<ModelKernels> gpu_kernels_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_MODEL_PLACE_H_
