// Averages the gradients of the parameters that ranks with different experts have in common. Each
// rank reduces its shard before a step. All engines have the same number of experts and equal
// shards.
#ifndef GEMINID_TRAINING_ENGINES_EXPERT_COPIES_H_
#define GEMINID_TRAINING_ENGINES_EXPERT_COPIES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"
#include "training/nn/parallel/memory.h"

namespace geminid::trainer {

class ExpertCopies {
 public:
  // `copied`: the engine's ids of trained parameters that are not experts. `ranks` have the other
  // experts; `memory` has room for a piece of a gradient. All outlive it. A collective of `ranks`.
  // INTERNAL if the engines shard the copies differently.
  static absl::StatusOr<std::unique_ptr<ExpertCopies>> Create(std::vector<zero::ParameterId> copied,
                                                              zero::Engine* engine,
                                                              collectives::Communicator* ranks,
                                                              collectives::Memory& memory);

  // Gives all copies the mean of their gradients. Returns the part of this rank's sum of squares
  // that another rank counts too. Call it after the engine's GradientNorm, call that again, and
  // then call Step.
  absl::StatusOr<double> AddUp();

 private:
  ExpertCopies(std::vector<zero::ParameterId> copied, zero::Engine* engine,
               collectives::Communicator* ranks, collectives::Memory& memory);
  absl::Status CheckCuts() const;

  const std::vector<zero::ParameterId> copied_;
  zero::Engine* const engine_;
  collectives::Communicator* const ranks_;
  collectives::Memory& memory_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_EXPERT_COPIES_H_
