// The order in which each stage of a pipeline computes its micro-batches. Pure functions: every
// stage computes its own list, and the lists of all stages cannot deadlock.
//
// Stages s = 0 .. S-1, micro-batches m = 0 .. M-1. A stage has one or more parts of the model. A
// micro-batch passes the parts in the order of their position = 0 .. parts * S - 1:
//
//   1F1B, interleaved   part p of stage s is at position p S + s        0 1 2 3 0 1 2 3
//   ZBV                 parts at positions s and 2S - 1 - s             0 1 2 3 3 2 1 0
//
// A backward has two halves, which may be apart. The stage before waits for the gradient of the
// input. No stage waits for the gradients of the weights.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_SCHEDULE_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::collectives {

enum class PipelineKind : uint8_t { k1F1B, kInterleaved, kZeroBubbleV };

// "1f1b", "interleaved", "zbv".
const char* Name(PipelineKind kind);

enum class PipelineWork : uint8_t {
  kForward,
  kBackward,        // both halves
  kBackwardInput,   // the gradient of the input
  kBackwardWeight,  // the gradients of the weights
};

struct PipelineAction {
  PipelineWork work = PipelineWork::kForward;
  int part = 0;
  int micro_batch = 0;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineShape {
  PipelineKind kind = PipelineKind::k1F1B;
  int stages = 1;
  int micro_batches = 1;
  int parts = 1;  // of a stage: 1 in 1F1B, 2 in ZBV
};

// Relative times of one part's work on one micro-batch. A backward takes the time of both halves.
struct PipelineCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;  // between two stages
};

// The actions of each stage, in order.
using PipelineSchedule = std::vector<std::vector<PipelineAction>>;

// INVALID_ARGUMENT: a size is below 1; the kind does not allow `parts`; or interleaved with
// micro-batches that the number of stages does not divide. Fewer micro-batches than stages are
// allowed, but leave stages mostly idle.
//   1F1B         S - 1 - s forwards, then one forward and one backward in turn
//   interleaved  2 (S - 1 - s) + (parts - 1) S forwards, then in turn (Narayanan et al. 2021)
//   ZBV          greedy by `costs` under the memory of 1F1B: 2 S parts' activations in flight per
//                stage, which is S stages' (after Qi et al. 2024). The others ignore `costs`.
absl::StatusOr<PipelineSchedule> MakePipelineSchedule(const PipelineShape& shape,
                                                      const PipelineCosts& costs = {});

// The most activations of parts that the stage holds at once; exact except for ZBV.
int MostInFlight(const PipelineShape& shape, int stage);

// The position of part `part` of stage `stage` in the model, and the inverse.
int PositionOf(const PipelineShape& shape, int stage, int part);
struct PipelinePlace {
  int stage = 0;
  int part = 0;
  friend bool operator==(const PipelinePlace&, const PipelinePlace&) = default;
};
PipelinePlace PlaceAt(const PipelineShape& shape, int position);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_SCHEDULE_H_
