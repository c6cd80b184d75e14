// The place where a rank's model computes: its device if that is a GPU, else the host.
#ifndef GEMINID_TRAINING_RANKS_MODEL_PLACE_H_
#define GEMINID_TRAINING_RANKS_MODEL_PLACE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/model/attention/attention_library_cuda.h"
#include "kernels/model/matmul/matmul_library_cuda.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// kAlone: a token's bits do not depend on the other tokens of its micro-batch
// (Resources::rows_alone). Matrix libraries do not promise that, so our own kernels compute.
enum class Tokens { kTogether, kAlone };

// The thread that runs the model makes, uses and destroys it. It outlives the engine.
class ModelPlace {
 public:
  // Of the session's device.
  static absl::StatusOr<std::unique_ptr<ModelPlace>> Find(const Session& session, Tokens tokens);

  bool on_gpu() const { return queue_ != nullptr; }
  GpuQueue* queue() const { return queue_.get(); }  // null: the host
  const ModelKernels& math() const { return gpu_kernels_ ? *gpu_kernels_ : HostKernels(); }
  // A description of what multiplies matrices, with the troubles so far.
  std::string Products() const;
  // The same of attention.
  std::string Attention() const;
  // `engine` and `session` outlive it.
  std::unique_ptr<ParameterSource> Source(zero::Engine* engine, const Session* session) const;

 private:
  ModelPlace() = default;
  std::unique_ptr<GpuQueue> queue_;                   // null: the host
  std::unique_ptr<kernels::MatmulLibrary> products_;  // null: kernels of our own
  std::string no_library_;                            // then, on a GPU: why
  std::unique_ptr<kernels::AttentionLibrary> attention_;
  std::string no_attention_;
  std::optional<ModelKernels> gpu_kernels_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_MODEL_PLACE_H_
