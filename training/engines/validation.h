// Computes the loss on held-out data.
#ifndef GEMINID_TRAINING_ENGINES_VALIDATION_H_
#define GEMINID_TRAINING_ENGINES_VALIDATION_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "training/data/batches.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

// Of one rank. The sequences are the same each time, so that losses of different steps, runs and
// numbers of ranks can be compared. Nothing in it changes a weight.
class Validation {
 public:
  // `plan` as that of training; `batches` micro-batches are measured. INVALID_ARGUMENT as of
  // Batches::Create.
  static absl::StatusOr<Validation> Create(const TokenRange& held_out, const BatchPlan& plan,
                                           uint64_t every_steps, uint64_t batches);

  // After step `done` of `steps`.
  bool Due(uint64_t done, uint64_t steps) const {
    return done % every_steps_ == 0 || done == steps;
  }
  // The sum of the losses of this rank's tokens. Between steps; all ranks must. `ends` is asked
  // after each micro-batch, and says alike on all ranks whether to leave the rest: there is no loss
  // then. With several stages of a pipeline it is asked more rarely: they all wait for it.
  using Evaluate = std::function<absl::StatusOr<double>(const MicroBatch& batch)>;
  using Ends = std::function<absl::StatusOr<bool>()>;
  absl::StatusOr<std::optional<double>> Run(const Evaluate& evaluate, const Ends& ends,
                                            int stages = 1);
  uint64_t micro_batches() const { return count_; }
  uint64_t tokens() const { return count_ * batches_.tokens_per_step(); }  // of all ranks

 private:
  Validation(Batches batches, uint64_t every_steps, uint64_t count)
      : batches_(std::move(batches)), every_steps_(every_steps), count_(count) {}

  Batches batches_;
  uint64_t every_steps_;
  uint64_t count_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_VALIDATION_H_
