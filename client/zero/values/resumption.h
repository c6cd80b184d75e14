// Resumes from the state that an earlier process of this rank left. The ranks agree on the last
// step that any of them committed. A rank that has not committed it gets its record, and every rank
// finishes its part of the update. proto/shm/commit_layout.h says why that is always possible.
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

// The position of a run, from its newest commit record.
struct RunPosition {
  uint64_t step = 0;
  uint64_t epoch = 0;    // of the record; marks the granules' versions
  uint64_t updates = 0;  // steps that changed the weights
  std::optional<LossScaler::State> loss_scaler{};
};

class Resumption {
 public:
  // All arguments outlive this object.
  Resumption(const EngineSetup& setup, StateStore* store, GranuleOptimizer* optimizer,
             RankLinks* links);

  // All ranks together. `run` has the epoch of this rank's newest record, and gets the position
  // that all ranks resume from. nullopt: some rank has nothing to resume from.
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
