// One rank's shard of each layer as a model of its own (1D tensor parallelism): some heads, some
// columns of the MLPs, and some rows of the tables, as tensor_parameters.h says. The output of a
// sublayer and the gradient of its input are sums over the ranks. Norms and the residual stream are
// on every rank, with the same bits.
#ifndef GEMINID_TRAINING_NN_LAYER_SHARE_H_
#define GEMINID_TRAINING_NN_LAYER_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "training/models/model_config.h"
#include "training/models/parameters.h"
#include "training/nn/blocks.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/scratch.h"
#include "training/nn/tensor_parameters.h"

namespace geminid::trainer {

// The model that a rank's part of each layer is.
ModelConfig ConfigOfShare(const ModelConfig& whole, int ranks);
// A rank's blocks, as such a model finds its parameters. The grid is 1D.
ModelParameters ParametersOfBlocks(const ModelConfig& share, const TensorParameters& blocks);

class LayerShare {
 public:
  // Rows of a table: as many on each rank, of which the last may be none of the table's.
  struct Rows {
    size_t first = 0;
    size_t count = 0;
    size_t used = 0;
  };

  // The most that goes between GPUs at a time.
  static constexpr size_t kDeviceSumBytes = size_t{16} << 20;

  // `ranks` share the layers, make the same calls, and outlive this. On `device` buffers are memory
  // of the ranks' GPUs; null: sums go through memory of the host, a piece at a time, which `memory`
  // has for it.
  LayerShare(const ModelConfig& config, const ModelParameters& parameters,
             collectives::Communicator* ranks, collectives::Communicator* device = nullptr,
             collectives::Memory& memory = collectives::HeapMemory());

  size_t ranks() const { return static_cast<size_t>(ranks_->WorldSize()); }
  size_t rank() const { return static_cast<size_t>(ranks_->Rank()); }
  // Of the token table and of the output layer; of the position table.
  const Rows& words() const { return words_; }
  const Rows& positions() const { return positions_; }

  // The same as this rank's logits have them: the number of a word that it has; else
  // words().used, which stands for all others'. An ignored target stays one.
  std::vector<int32_t> TargetsHere(std::span<const int32_t> targets) const;

  // Puts the sum over the ranks, added in rank order, in the place of `values`; the same bits on
  // all.
  absl::Status Sum(const Resources& resources, float* values, size_t count);
  // The same, of values that are rounded before and after it.
  template <typename T>
  absl::Status Sum(const Resources& resources, T* values, size_t count);
  // What each rank gives, one behind the other; host memory.
  absl::StatusOr<std::vector<float>> Gather(std::span<const float> mine);

 private:
  absl::Status SumThroughHost(const Resources& resources, float* values, size_t count);

  collectives::Communicator* const ranks_;
  collectives::Communicator* const device_;
  collectives::Memory& memory_;
  Rows words_, positions_;
};

// Nothing where layers are whole.
inline absl::Status SumOverRanks(const Resources& resources, const HalfContext& context,
                                 Matrix<float> values) {
  if (context.layers == nullptr) return absl::OkStatus();
  return context.layers->Sum(resources, values.data, values.size());
}

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_LAYER_SHARE_H_
