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

// One rank's validation. Its sequences are the same each time, so that losses of different steps,
// runs and numbers of ranks can be compared. It changes no weight.
class Validation {
 public:
  // `plan` is that of training; `batches` is the number of micro-batches to measure.
  // INVALID_ARGUMENT as Batches::Create.
  static absl::StatusOr<Validation> Create(const TokenRange& held_out, const BatchPlan& plan,
                                           uint64_t every_steps, uint64_t batches);

  // Whether a validation follows step `done` of `steps`.
  bool Due(uint64_t done, uint64_t steps) const {
    return done % every_steps_ == 0 || done == steps;
  }
  // The sum of the losses of this rank's tokens. All ranks call it, between steps. It calls `ends`
  // after each micro-batch: true, on all ranks alike, stops the validation without a loss.
  // Pipelines call `ends` more rarely, because all stages wait for it.
  using Evaluate = std::function<absl::StatusOr<double>(const MicroBatch& batch)>;
  using ShouldEnd = std::function<absl::StatusOr<bool>()>;
  absl::StatusOr<std::optional<double>> Run(const Evaluate& evaluate, const ShouldEnd& should_end,
                                            int stages = 1);
  // In the last Run, how many of this rank's images got their label; unset: it has no images.
  std::optional<uint64_t> right() const {
    return batches_.has_labels() ? std::optional(right_) : std::nullopt;
  }
  uint64_t micro_batches() const { return count_; }
  uint64_t tokens() const { return count_ * batches_.tokens_per_step(); }  // of all ranks
  // Of these, over how many the loss is a mean.
  uint64_t targets() const {
    return tokens() / batches_.tokens_per_sequence() * batches_.targets_per_sequence();
  }

 private:
  Validation(Batches batches, uint64_t every_steps, uint64_t count)
      : batches_(std::move(batches)), every_steps_(every_steps), count_(count) {}

  Batches batches_;
  uint64_t every_steps_;
  uint64_t count_;
  uint64_t right_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_VALIDATION_H_
