// One rank's part of a model's step: the tensors that it keeps, and the cost of each operator.
#ifndef GEMINID_TRAINING_FORECAST_RANK_WORK_H_
#define GEMINID_TRAINING_FORECAST_RANK_WORK_H_

#include <cstdint>
#include <vector>

#include "training/forecast/costs.h"
#include "training/forecast/model.h"
#include "training/models/parameters.h"

namespace geminid::forecast {

using trainer::ModelPart;

// Of one pass over one micro-batch. Pure; calls with equal arguments give the same.
class RankWork {
 public:
  virtual ~RankWork() = default;

  virtual ModelPart part() const = 0;
  // What the rank keeps before those that share it out keep a shard each; in order of first use in
  // the forward pass. A tied table is there twice where no rank has both ends of the model.
  virtual std::vector<Tensor> OwnTensors() const = 0;
  // The ranks that keep the same tensors and share them out.
  virtual std::uint32_t sharing_ranks() const = 0;
  // Micro-batches whose activations are kept all the time beside those of the pass at hand. Not a
  // whole number where only parts of some are.
  virtual double held_micro_batches() const = 0;

  virtual Saved SavedOf(Operator part) const = 0;
  virtual std::uint64_t WorkspaceOf(Operator op, Turn turn) const = 0;
  // Computation, and exchanges that it waits for.
  virtual double SecondsOf(Operator op, Turn turn) const = 0;
};

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_RANK_WORK_H_
