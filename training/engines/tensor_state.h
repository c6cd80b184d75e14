// Presents the state of a tensor-parallel model as the state of the whole model, so that
// checkpoints do not depend on the grid of ranks.
#ifndef GEMINID_TRAINING_ENGINES_TENSOR_STATE_H_
#define GEMINID_TRAINING_ENGINES_TENSOR_STATE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/model_state.h"
#include "training/nn/tensor_parameters.h"

namespace geminid::trainer {

class TensorState final : public zero::ModelState {
 public:
  // Ids are those of MakeParameters for the whole model. `blocks`: the blocks of all its
  // parameters, by rank of the grid. `inner` has this rank's blocks, by their ids, and may shard
  // them over further ranks. `ranks` are those of the grid. The arguments outlive this object.
  TensorState(const ModelConfig& config, std::vector<TensorParameters> blocks,
              zero::ModelState* inner, collectives::Communicator* ranks);

  absl::Status Initialize(const Fill& fill) override;
  void Invalidate(std::string why) override { inner_->Invalidate(std::move(why)); }
  absl::StatusOr<std::vector<float>> ReadParameter(zero::ParameterId id) override;
  std::vector<zero::ShardRange> ShardOf(zero::ParameterId id) const override;
  bool HasState(zero::ParameterId id, zero::StateKind kind) const override;
  zero::DataType state_type() const override { return inner_->state_type(); }
  const char* optimizer_name() const override { return inner_->optimizer_name(); }
  absl::Status ReadShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                         std::span<float> values) override;
  absl::Status WriteShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                          std::span<const float> values) override;
  absl::Status Restore(const zero::Progress& progress) override;
  absl::StatusOr<zero::Progress> GetProgress() override;
  // If several ranks have a block, the first of them gives it to the sink.
  absl::Status StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) override;
  absl::Status WaitSnapshot() override;
  std::optional<zero::Resumed> resumed() const override { return inner_->resumed(); }
  absl::Status Meet(std::string_view words) override { return inner_->Meet(words); }

 private:
  const TensorParameters& Mine() const { return blocks_[static_cast<size_t>(ranks_->Rank())]; }
  // Consecutive elements of a block, and their place in the range that is read or written.
  struct Elements {
    uint64_t in_block = 0;
    uint64_t in_values = 0;
    uint64_t count = 0;
  };
  absl::StatusOr<std::vector<Elements>> Here(zero::ParameterId id, uint64_t offset,
                                             uint64_t count) const;
  // The block that contains this parameter.
  zero::ParameterId BlockOf(zero::ParameterId id) const {
    return block_of_[static_cast<size_t>(id)];
  }

  const std::vector<ParameterSpec> specs_;  // of the whole model
  const std::vector<TensorParameters> blocks_;
  std::vector<zero::ParameterId> block_of_;  // by the model's ids
  zero::ModelState* const inner_;
  collectives::Communicator* const ranks_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_TENSOR_STATE_H_
