// What a model works on at a time: tokens, with where they are in their sequences.
#ifndef GEMINID_TOOLS_TRAINER_MICRO_BATCH_H_
#define GEMINID_TOOLS_TRAINER_MICRO_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trainer/blocks.h"
#include "tools/trainer/model_config.h"

namespace geminid::trainer {

struct MicroBatch {
  MicroBatchShape shape;
  std::span<const int32_t> tokens;   // [sequences, sequence_length]
  std::span<const int32_t> targets;  // the token after each
  Positions positions = {};          // of the tokens of each sequence
  Dropout dropout = {};              // in training alone
  bool keeps_activations = false;    // for the backward pass; changes no bit
};

// INVALID_ARGUMENT: sizes that do not fit together, or tokens beyond a model's `context`.
absl::Status CheckMicroBatch(const MicroBatch& batch, uint64_t context);

// Cosines, then sines: RotaryTables of `length` tokens of a sequence.
absl::StatusOr<std::vector<float>> RotaryTableOf(const ModelConfig& config,
                                                 const Positions& positions, size_t length);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_MICRO_BATCH_H_
