// Runs one stage's part of a pipeline's schedule: receives what an action needs, lets the stage
// work, and sends what comes out while the next action runs.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_EXECUTOR_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_EXECUTOR_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// The computation. Called by one thread, in the schedule's order.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;

  // `in` is empty at the model's first part, which has the input itself; `out` at its last, which
  // computes the loss.
  virtual absl::Status Forward(int part, int micro_batch, std::span<const float> in,
                               std::span<float> out) = 0;
  // From the gradient of the output, empty at the last part, that of the input, empty at the first.
  virtual absl::Status BackwardInput(int part, int micro_batch, std::span<const float> out_gradient,
                                     std::span<float> in_gradient) = 0;
  // Adds the gradients of the weights. Called once for each micro-batch, after BackwardInput.
  virtual absl::Status BackwardWeight(int part, int micro_batch) = 0;
};

class PipelineExecutor {
 public:
  // `stages` has a rank for each stage, in order; the executor makes communicators of each two
  // neighbours and lets go of it. A collective of them all. `activation_elements`: of what passes
  // between two parts for one micro-batch, the same everywhere. From now on it has room in `memory`
  // for MostParcels (parcels.h) of these. INVALID_ARGUMENT as MakePipelineSchedule, or where the
  // ranks are not as many as the stages; RESOURCE_EXHAUSTED where that room is refused, which the
  // other ranks are told before anything is sent.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(const PipelineShape& shape,
                                                                const PipelineCosts& costs,
                                                                size_t activation_elements,
                                                                Communicator& stages,
                                                                Memory& memory = HeapMemory());
  virtual ~PipelineExecutor() = default;

  // One pass over all micro-batches; returns when this stage has done its part and all that it sent
  // was taken. Errors: the stage's own, after which the neighbours get ABORTED, and those of the
  // communicators. After an error the executor gives the same again. One thread at a time.
  virtual absl::Status Run(PipelineStage& stage) = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_EXECUTOR_H_
