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
#include "training/nn/gpu_queue.h"
#include "training/nn/layer_share.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parallel/axis_ranks.h"
#include "training/nn/parallel/memory.h"
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

  // How a rank computes its blocks of a grid's layers: on the GPU of `queue`, with `math`, or if
  // `queue` is null on the host, on `threads`. Exchanges between GPUs that have no other way pass
  // through `memory`, of the host. All outlive the model.
  struct GridPlace {
    const ModelKernels& math;
    GpuQueue* queue;
    device::Device* device;  // of the queue's GPU
    kernels::ThreadPool* threads;
    collectives::Memory& memory;
  };
  // A collective of the grid's ranks. Makes this rank's model of the layers of a grid, for
  // micro-batches of `shape`. This object outlives the model.
  absl::StatusOr<std::unique_ptr<Transformer>> MakeModel(zero::DataType data_type,
                                                         const MicroBatchShape& shape,
                                                         const SequenceSlice& pieces,
                                                         const GridPlace& place);

  // INVALID_ARGUMENT on all of the grid's ranks if some compute on GPUs and others do not.
  absl::Status CheckPlaces(bool on_gpu);
  // Makes the sums of MakeShare's model go from GPU to GPU if a backend can do that. Without this
  // call, and otherwise, sums on GPUs go through host memory.
  absl::Status ConnectGpus(device::Device* device);
  // How a rank computes its shards: by `math`, and on the host on `threads`, which may be null.
  // Sums on GPUs pass through `memory`, of the host. All outlive the model.
  struct SharePlace {
    const ModelKernels& math;
    kernels::ThreadPool* threads;
    SequenceExchange cut;
    collectives::Memory& memory;
  };
  // Makes this rank's model of its shards of layers, for micro-batches of any shape. The grid is
  // 1D. This object outlives the model.
  absl::StatusOr<std::unique_ptr<Transformer>> MakeShare(zero::DataType data_type,
                                                         const SharePlace& place);

  // This rank's blocks as parameters for an engine. PartBlocks: those of its part, with the pieces
  // of the model's parameters in them. ModelBlocks: those of the whole model.
  std::vector<zero::Parameter> PartBlocks() const;
  std::vector<zero::Parameter> ModelBlocks() const;

  // The whole model's state. `inner` has all of this rank's blocks, and outlives the result.
  std::unique_ptr<TensorState> JoinState(zero::ModelState* inner) const;

  const collectives::Communicator& ranks() const { return *ranks_; }
  // What carries the exchanges of layers between GPUs; with the reason if it is not NCCL.
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

  // What exchanges memory of the GPUs of `ranks`, which outlive the result.
  absl::StatusOr<std::unique_ptr<collectives::AxisRanks>> ConnectAxis(
      const GridPlace& place, collectives::Communicator& ranks);

  const ModelConfig config_;
  const collectives::TensorGrid grid_;
  std::unique_ptr<collectives::Communicator> ranks_;
  std::unique_ptr<collectives::TensorGroups> groups_;      // in all modes but 1D
  std::unique_ptr<collectives::AxisRanks> ranks_on_gpus_;  // the same, of the whole grid
  // In 1D. Null if no backend copies between GPUs.
  std::unique_ptr<collectives::Communicator> devices_;
  std::unique_ptr<LayerShare> share_;  // in 1D
  std::string adds_up_by_;
  TensorParameters part_;
  std::vector<TensorParameters> whole_;  // by rank of the grid
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_TENSOR_RANKS_H_
