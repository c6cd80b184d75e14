// Runs one stage's part of a pipeline's schedule: receives the inputs of an action, lets the stage
// compute, and sends the results while the next action runs.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_EXECUTOR_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_EXECUTOR_H_

#include <cstddef>
#include <memory>
#include <span>

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

  // `in` is empty at the model's first part, which has the input itself. `out` is empty at the last
  // part, which computes the loss.
  virtual absl::Status Forward(int part, int micro_batch, std::span<const float> in,
                               std::span<float> out) = 0;
  // Computes the input's gradient, which is empty at the first part, from the output's gradient,
  // which is empty at the last part.
  virtual absl::Status BackwardInput(int part, int micro_batch, std::span<const float> out_gradient,
                                     std::span<float> in_gradient) = 0;
  // Adds the gradients of the weights. Called once for each micro-batch, after BackwardInput.
  virtual absl::Status BackwardWeight(int part, int micro_batch) = 0;
};

class PipelineExecutor {
 public:
  // `stages` has a rank for each stage, in order. Make is a collective of these ranks; it makes a
  // communicator for each pair of neighbours and does not use `stages` afterwards.
  // `activation_elements` is the size of the data between two parts for one micro-batch, equal
  // everywhere. The executor holds MostStageMessages (stage_messages.h) buffers of this size in
  // `memory`. INVALID_ARGUMENT like MakePipelineSchedule, or if there are not as many ranks as
  // stages. If memory is refused, returns RESOURCE_EXHAUSTED and tells the other ranks before
  // anything is sent.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(const PipelineShape& shape,
                                                                const PipelineCosts& costs,
                                                                size_t activation_elements,
                                                                Communicator& stages,
                                                                Memory& memory = HeapMemory());
  virtual ~PipelineExecutor() = default;

  // Runs one pass over all micro-batches. Returns when this stage is done and its receivers have
  // taken all messages. Errors are those of the stage, after which the neighbours get ABORTED, and
  // those of the communicators. After an error every call returns the same error. One thread at a
  // time.
  virtual absl::Status Run(PipelineStage& stage) = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_EXECUTOR_H_
