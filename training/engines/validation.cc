#include "training/engines/validation.h"

#include "base/status_macros.h"

namespace geminid::trainer {

absl::StatusOr<Validation> Validation::Create(const TokenRange& held_out, const BatchPlan& plan,
                                              uint64_t every_steps, uint64_t batches) {
  BatchPlan one = plan;
  one.accumulate = 1;
  GEMINID_ASSIGN_OR_RETURN(Batches made, Batches::Create(held_out, one));
  return Validation(std::move(made), every_steps, batches);
}

absl::StatusOr<std::optional<double>> Validation::Run(const Evaluate& evaluate,
                                                      const ShouldEnd& should_end, int stages) {
  // Filling and emptying the pipeline costs stages - 1 of so many.
  const uint64_t stride = stages == 1 ? 1 : 4 * static_cast<uint64_t>(stages);
  double sum = 0;
  right_ = 0;
  for (uint64_t i = 0; i < count_; ++i) {
    GEMINID_ASSIGN_OR_RETURN(MicroBatch batch, batches_.GetEven(i, count_));
    if (batches_.has_labels()) batch.right = &right_;
    GEMINID_ASSIGN_OR_RETURN(const double loss, evaluate(batch));
    sum += loss;
    if (i + 1 == count_ || (i + 1) % stride != 0) continue;
    GEMINID_ASSIGN_OR_RETURN(const bool over, should_end());
    if (over) return std::optional<double>();
  }
  return std::optional<double>(sum);
}

}  // namespace geminid::trainer
