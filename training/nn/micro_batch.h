// A micro-batch: tokens or images, targets, and the positions of the tokens in their sequences.
#ifndef GEMINID_TRAINING_NN_MICRO_BATCH_H_
#define GEMINID_TRAINING_NN_MICRO_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/activation_stack.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "training/models/model_config.h"
#include "training/nn/blocks.h"

namespace geminid::trainer {

inline constexpr int32_t kNoTarget = kernels::kIgnoredTarget;

struct MicroBatch {
  MicroBatchShape shape;
  // [sequences, sequence_length]; of images empty.
  std::span<const int32_t> tokens;
  // The token after each. Of a masked language model each token that was chosen, and of images each
  // class at the first token of its image; kNoTarget for the others.
  std::span<const int32_t> targets;
  std::span<const float> patches = {};  // of images, [sequences, patches, patch_elements]
  Positions positions = {};        // of the tokens of each sequence
  Dropout dropout = {};            // only in training
  bool keeps_activations = false;  // stores them for the backward pass; changes no bit
  // Where kept activations go, with items of Transformer::ItemBytes; null: to the workspace.
  zero::ActivationStack* stack = nullptr;
  // In evaluation, where how many targets are the likeliest of their row is added; null: not asked.
  uint64_t* right = nullptr;
};

// INVALID_ARGUMENT: sizes that do not fit together, or tokens beyond the model's context.
absl::Status CheckMicroBatch(const MicroBatch& batch, const ModelConfig& config);

// The cosines and sines of a model's positions. The first call computes those of its micro-batch,
// and a later call computes more if its micro-batch reaches further. One thread at a time.
class RotaryPositions {
 public:
  explicit RotaryPositions(const ModelConfig& config)
      : angles_(RotaryAngles(config.rotary_columns(), config.rotary_theta, config.rotary_scaling)),
        length_(config.rotary_scaling.attention_factor),
        context_(config.context) {}

  // RotaryTables of `count` tokens from `position` on. Valid until the next call.
  absl::StatusOr<RotaryTables> Of(size_t position, size_t count);

  size_t columns() const { return 2 * angles_.size(); }  // of a head, that rotate
  size_t computed() const { return positions_; }         // positions that are in the table

 private:
  const std::vector<double> angles_;
  const double length_;
  const size_t context_;
  size_t positions_ = 0;
  std::vector<float> tables_;  // cosines [positions_, angles_.size()], then sines
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_MICRO_BATCH_H_
