// Between steps the engine gives its arena to a job of higher priority, waits in the queue, and
// continues. All state comes back bit-identical. If Admission::on_wait ends the wait, the state
// stays on the host.
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/crash_points.h"
#include "client/zero/engine/engine_impl.h"

namespace geminid::zero {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<bool> EngineImpl::AllRanks(bool mine) {
  std::vector<double> missing = {mine ? 0.0 : 1.0};
  GEMINID_RETURN_IF_ERROR(links_->agreement().Worst(&missing));
  return missing[0] == 0;
}

// A rank that was asked tells all ranks in the sum of the step's norm. If one rank cannot yield
// now, because its trainer holds workspace or its state has no room on the host, all continue and
// retry after the next step.
absl::Status EngineImpl::YieldIfAsked() {
  if (!step_->TakeYieldAsked()) return absl::OkStatus();
  const Residency::PlacementScope placing(residency_.get());  // until the arena is back
  GEMINID_RETURN_IF_ERROR(updater_->WaitIdle(setup_.options.timeout));
  // The snapshot reads the state in its place. WaitSnapshot returns the snapshot's own error.
  const bool read = !absl::IsDeadlineExceeded(state_->snapshotter().Wait(setup_.options.timeout));
  SavedActivations* const saved = residency_->saved_activations();
  const SavedActivations::Pause pause(saved);  // waits for copies; ends with this function
  const bool idle = read && pause.status().ok() && residency_->workspace().in_use_bytes() == 0 &&
                    !residency_->AnyBlockInHoles();
  const bool ready = idle && store_->PrepareToLeave().ok();
  GEMINID_ASSIGN_OR_RETURN(const bool all_ready, AllRanks(ready));
  if (!all_ready) {
    if (ready) store_->CancelLeave();
    return absl::OkStatus();
  }
  GEMINID_RETURN_IF_ERROR(LeaveArena());
  const absl::Time began = setup_.clock();
  GEMINID_RETURN_IF_ERROR(AwaitArena());
  AddQueued(*setup_.session, setup_.clock() - began);
  if (standing_.wait_ended.ok()) {
    CrashPoint("arena taken");
    GEMINID_RETURN_IF_ERROR(store_->ReturnToDevice());
  } else {
    store_->StayOnHost();
    if (saved != nullptr) saved->Fail(standing_.wait_ended);
  }
  return ReadHostBytes();
}

// Waits until all ranks have their arenas again, or one rank's wait was ended.
absl::Status EngineImpl::AwaitArena() {
  ArenaWait mine;
  for (;;) {
    if (!mine.taken) {
      GEMINID_ASSIGN_OR_RETURN(mine, TakeArenaAgain(*setup_.session));
    }
    std::vector<double> of_any = {mine.taken ? 0.0 : 1.0, mine.ended.ok() ? 0.0 : 1.0};
    GEMINID_RETURN_IF_ERROR(links_->agreement().Worst(&of_any));
    if (of_any[1] > 0) {
      standing_.wait_ended = absl::CancelledError(
          absl::StrCat("the engine has no device memory: the wait for it was ended",
                       mine.ended.ok() ? " by another rank" : ": ", mine.ended.message()));
      return absl::OkStatus();
    }
    if (of_any[0] == 0) return absl::OkStatus();
    absl::SleepFor(kPause);
  }
}

absl::Status EngineImpl::LeaveArena() {
  GEMINID_RETURN_IF_ERROR(residency_->Move(director_->DropAll()));
  GEMINID_RETURN_IF_ERROR(residency_->GiveWorkspaceUp());
  GEMINID_RETURN_IF_ERROR(residency_->mover().WaitIdle());
  GEMINID_RETURN_IF_ERROR(store_->LeaveDevice());
  // Requests are executed in order: when this one ends, all earlier ones have ended.
  GEMINID_RETURN_IF_ERROR(
      setup_.session->ReserveWorkspace(0, /*may_evict=*/false).Wait(setup_.options.timeout));
  GEMINID_RETURN_IF_ERROR(GiveArenaBack(*setup_.session));
  CrashPoint("arena given back");
  return absl::OkStatus();
}

}  // namespace geminid::zero
