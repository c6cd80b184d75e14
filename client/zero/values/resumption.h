// Going on from what a predecessor of this process left. The ranks agree on the last step that any
// of them committed. Ranks that have not committed that step get its record, and every rank
// finishes its part of the update. See proto/shm/commit_layout.h for why that is always possible.
#ifndef GEMINID_CLIENT_ZERO_VALUES_RESUMPTION_H_
#define GEMINID_CLIENT_ZERO_VALUES_RESUMPTION_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/rank_links.h"
#include "client/zero/state/state_store.h"
#include "client/zero/state/step_notes.h"
#include "client/zero/update/granule_optimizer.h"
#include "geminid/loss_scaler.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Where a run stands: what its newest commit record says.
struct RunPosition {
  uint64_t step = 0;
  uint64_t epoch = 0;    // of the record, by which granules are told apart
  uint64_t updates = 0;  // steps that changed the weights
  std::optional<LossScaler::State> loss_scaler{};
};

class Resumption {
 public:
  // All outlive it.
  Resumption(const EngineSetup& setup, StateStore* store, GranuleOptimizer* optimizer,
             RankLinks* links);

  // All ranks together. `run` has the epoch of this rank's newest record; it becomes what all go on
  // from. Nothing: some rank has nothing to go on from.
  absl::StatusOr<std::optional<Resumed>> Resume(RunPosition* run);

 private:
  std::optional<uint64_t> StepLeft() const;
  absl::Status PassStep(int ahead, bool is_behind, RunPosition* run);
  absl::Status PassNote(int ahead, uint64_t epoch, StepNote* note);
  absl::Status ReadTensorStateOf(uint64_t epoch, std::span<std::byte> bytes);
  absl::StatusOr<uint64_t> FinishUpdate();

  const EngineSetup& setup_;
  StateStore& store_;
  GranuleOptimizer& optimizer_;
  RankLinks& links_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_VALUES_RESUMPTION_H_
