// Between steps the engine gives its arena to a job of higher priority, waits in the queue, and
// goes on. Every byte that is not computed anew comes back as it was. Where Admission::on_wait ends
// the wait, the state stays on the host.
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
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

// Any rank that was asked asks all, in the sum of the step's norm. Where one cannot now, because
// its trainer holds workspace or there is no room for its state, all go on and try after the next
// step.
absl::Status EngineImpl::YieldIfAsked() {
  if (!step_->TakeYieldAsked()) return absl::OkStatus();
  const Residency::Placing placing(residency_.get());  // until the arena is here again
  GEMINID_RETURN_IF_ERROR(updater_->WaitIdle(setup_.options.timeout));
  // It reads the state where it is; what became of it is said by WaitSnapshot.
  const bool read = !absl::IsDeadlineExceeded(state_->snapshotter().Wait(setup_.options.timeout));
  SavedActivations* const saved = residency_->saved_activations();
  const SavedActivations::Pause pause(saved);  // likewise
  const bool idle = read && pause.status().ok() && residency_->workspace().in_use_bytes() == 0 &&
                    !residency_->AnyBlockInHoles();
  const bool ready = idle && store_->PrepareToLeave().ok();
  GEMINID_ASSIGN_OR_RETURN(const bool all_ready, AllRanks(ready));
  if (!all_ready) {
    if (ready) store_->StayAfterAll();
    return absl::OkStatus();
  }
  GEMINID_RETURN_IF_ERROR(LeaveArena());
  const absl::Time began = setup_.clock();
  GEMINID_RETURN_IF_ERROR(AwaitArena());
  AddQueued(*setup_.session, setup_.clock() - began);
  if (standing_.wait_ended.ok()) {
    GEMINID_RETURN_IF_ERROR(store_->ReturnToDevice());
  } else {
    store_->StayOnHost();
    if (saved != nullptr) saved->Fail(standing_.wait_ended);
  }
  return ReadHostBytes();
}

// Until all ranks have their arenas again, or the wait of one has been ended.
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
  // Requests are carried out in order: what was asked before this is done when it is.
  GEMINID_RETURN_IF_ERROR(
      setup_.session->ReserveWorkspace(0, /*may_evict=*/false).Wait(setup_.options.timeout));
  return GiveArenaBack(*setup_.session);
}

}  // namespace geminid::zero
