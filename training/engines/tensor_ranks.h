// One rank's view of the tensor-parallel group: its communicators, its shard of each parameter, and
// which shards count in the norm of the gradient.
#ifndef GEMINID_TRAINING_ENGINES_TENSOR_RANKS_H_
#define GEMINID_TRAINING_ENGINES_TENSOR_RANKS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/device/device.h"
#include "geminid/communicator.h"
#include "geminid/mesh.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/engines/tensor_state.h"
#include "training/nn/layer_share.h"
#include "training/nn/parallel/tensor/tensor_groups.h"
#include "training/settings/options.h"
#include "training/transformer/tensor_transformer.h"

namespace geminid::trainer {

class TensorRanks {
 public:
  // A collective of `world`. This rank trains `part`.
  static absl::StatusOr<std::unique_ptr<TensorRanks>> Connect(const TrainOptions& options,
                                                              const ModelPart& part,
                                                              const collectives::Mesh& mesh,
                                                              collectives::Communicator& world);

  // Makes this rank's model for micro-batches of `shape`. This object outlives the model, and
  // `threads` too.
  absl::StatusOr<std::unique_ptr<Transformer>> MakeModel(const MicroBatchShape& shape,
                                                         const TensorPieces& pieces,
                                                         kernels::ThreadPool* threads);

  // INVALID_ARGUMENT on all of the grid's ranks if some compute on GPUs and others do not.
  absl::Status CheckPlaces(bool on_gpu);
  // Makes this rank's model on `device`, a GPU with the kernels `math`, for micro-batches of any
  // shape. The grid is 1D. Sums over ranks go from GPU to GPU if a backend can do that, else
  // through the host memory that `cut` names.
  absl::StatusOr<std::unique_ptr<Transformer>> MakeShare(zero::DataType data_type,
                                                         device::Device* device,
                                                         const ModelKernels& math,
                                                         const SequenceCut& cut);

  // This rank's blocks as parameters for an engine. PartBlocks: those of its part, with the pieces
  // of the model's parameters in them. ModelBlocks: those of the whole model.
  std::vector<zero::Parameter> PartBlocks() const;
  std::vector<zero::Parameter> ModelBlocks() const;

  // The whole model's state. `inner` has all of this rank's blocks, and outlives the result.
  std::unique_ptr<TensorState> JoinState(zero::ModelState* inner) const;

  const collectives::Communicator& ranks() const { return *ranks_; }
  // What carries the sums of MakeShare's model; with the reason if it is not NCCL.
  const std::string& adds_up_by() const { return adds_up_by_; }
  // Whether this rank is the first that has this block of its part.
  bool Keeps(zero::ParameterId id) const { return part_.blocks[static_cast<size_t>(id)].keeps; }
  // This rank's summand of the squared norm of the whole model's gradient. The summands of all
  // ranks count each element once. `norm` is the engine's norm of the part's blocks, which only the
  // rank with `leads` counts. Call it between GradientNorm and Step.
  absl::StatusOr<double> Squares(zero::Engine& engine, double norm, bool leads) const;

 private:
  TensorRanks(const ModelConfig& config, const collectives::TensorGrid& grid)
      : config_(config), grid_(grid) {}

  const ModelConfig config_;
  const collectives::TensorGrid grid_;
  std::unique_ptr<collectives::Communicator> ranks_;
  std::unique_ptr<collectives::TensorGroups> groups_;
  // With layers on GPUs. devices_ is null if no backend copies between the GPUs.
  std::unique_ptr<collectives::Communicator> devices_;
  std::unique_ptr<LayerShare> share_;
  std::string adds_up_by_;
  TensorParameters part_;
  std::vector<TensorParameters> whole_;  // by rank of the grid
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_TENSOR_RANKS_H_
