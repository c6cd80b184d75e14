// One rank's shard of each layer as a model of its own (1D tensor parallelism). tensor_parameters.h
// says which heads, MLP columns and table rows a shard has. The output of a sublayer and the
// gradient of its input are sums over the ranks. Every rank has the norms and the residual stream,
// with the same bits.
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

// The configuration of the model that a rank's shards form.
ModelConfig ConfigOfShare(const ModelConfig& whole, int ranks);
// A rank's blocks as the parameters of that model. The grid is 1D.
ModelParameters ParametersOfBlocks(const ModelConfig& share, const TensorParameters& blocks);

class LayerShare {
 public:
  // A rank's rows of a table: equally many on each rank. Rows beyond `used` are beyond the table.
  struct Rows {
    size_t first = 0;
    size_t count = 0;
    size_t used = 0;
  };

  // The most bytes that GPUs sum at a time.
  static constexpr size_t kDeviceSumBytes = size_t{16} << 20;

  // `ranks` share the layers, make the same calls, and outlive this. On `device` buffers are memory
  // of the ranks' GPUs; null: sums of a GPU go through memory of the host, a piece at a time, which
  // `memory` has for it. The host adds up in place.
  LayerShare(const ModelConfig& config, const ModelParameters& parameters,
             collectives::Communicator* ranks, collectives::Communicator* device = nullptr,
             collectives::Memory& memory = collectives::HeapMemory());

  size_t ranks() const { return static_cast<size_t>(ranks_->WorldSize()); }
  size_t rank() const { return static_cast<size_t>(ranks_->Rank()); }
  // `words` are this rank's rows of the token table and of the output layer; `positions` are those
  // of the position table.
  const Rows& words() const { return words_; }
  const Rows& positions() const { return positions_; }

  // Converts targets to the columns of this rank's logits: a word of this rank becomes its column.
  // All words of other ranks become words().used. An ignored target stays an ignored target.
  std::vector<int32_t> TargetsHere(std::span<const int32_t> targets) const;

  // Overwrites `values` with their sum over the ranks, added in rank order. All ranks get the same
  // bits.
  absl::Status Sum(const Resources& resources, float* values, size_t count);
  // Sum for values that are rounded before and after the sum.
  template <typename T>
  absl::Status Sum(const Resources& resources, T* values, size_t count);
  // Concatenates the values of all ranks, in host memory.
  absl::StatusOr<std::vector<float>> Gather(std::span<const float> mine);

 private:
  absl::Status SumThroughHost(const Resources& resources, float* values, size_t count);

  collectives::Communicator* const ranks_;
  collectives::Communicator* const device_;
  collectives::Memory& memory_;
  Rows words_, positions_;
};

// Does nothing if layers are whole.
inline absl::Status SumOverRanks(const Resources& resources, const SublayerContext& context,
                                 Matrix<float> values) {
  if (context.layers == nullptr) return absl::OkStatus();
  return context.layers->Sum(resources, values.data, values.size());
}

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_LAYER_SHARE_H_
