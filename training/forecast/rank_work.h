// One rank's part of a model's step: the tensors that it has, and the cost of each operator.
#ifndef GEMINID_TRAINING_FORECAST_RANK_WORK_H_
#define GEMINID_TRAINING_FORECAST_RANK_WORK_H_

#include <cstdint>
#include <vector>

#include "training/forecast/costs.h"
#include "training/forecast/model.h"
#include "training/models/parameters.h"

namespace geminid::forecast {

using trainer::ModelPart;

// The work of one pass over one micro-batch. Pure: equal arguments give equal results.
class RankWork {
 public:
  virtual ~RankWork() = default;

  virtual ModelPart part() const = 0;
  // The rank's tensors before they are sharded over the ranks that have the same ones, in order of
  // first use in the forward pass. A tied table is listed twice if no rank has both model ends.
  virtual std::vector<Tensor> OwnTensors() const = 0;
  // The number of ranks that have the same tensors and shard them.
  virtual std::uint32_t sharing_ranks() const = 0;
  // Micro-batches whose activations are held all the time, besides those of the current pass. Not a
  // whole number if only parts of some micro-batches are held.
  virtual double held_micro_batches() const = 0;

  virtual Saved SavedOf(Operator part) const = 0;
  // All that a sublayer saves if nothing is recomputed but what the trainer always recomputes.
  virtual std::uint64_t KeptOf(Operator part) const { return SavedOf(part).bytes(); }
  virtual std::uint64_t WorkspaceOf(Operator op, PassDirection turn) const = 0;
  // Seconds of computation, and of exchanges that computation waits for.
  virtual double SecondsOf(Operator op, PassDirection turn) const = 0;
};

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_RANK_WORK_H_
