// The bytes of activations that a stage holds while it works through its actions. Pure.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_HELD_BYTES_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_HELD_BYTES_H_

#include <cstdint>
#include <span>

#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// The bytes of one part and micro-batch: `forward` from the forward pass until the input's gradient
// is computed; then `later`, the inputs of the weights' gradients.
struct PartBytes {
  uint64_t forward = 0;
  uint64_t later = 0;
};

// The most that a stage with these parts holds at once.
uint64_t MostHeldBytes(std::span<const PipelineAction> actions, std::span<const PartBytes> parts);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_HELD_BYTES_H_
