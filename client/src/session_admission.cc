// How a session gets its memory while other jobs want it too: waits for admission, gives the arena
// back, and takes it again.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/src/daemon_ended.h"
#include "client/src/session_impl.h"
#include "client/src/session_internal.h"

namespace geminid {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(5);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

}  // namespace

std::string SessionImpl::Describe(const Control::AdmissionStatus& standing) const {
  std::string words = absl::StrCat("job ", options.job, " is ", standing.state);
  if (standing.position > 0) absl::StrAppend(&words, ", position ", standing.position);
  if (!standing.reason.empty()) absl::StrAppend(&words, ": ", standing.reason);
  return words;
}

absl::StatusOr<Control::AdmissionStatus> SessionImpl::AskAdmission() const {
  const int ranks =
      options.local_world_size > 0 ? options.local_world_size : std::max(options.world_size, 1);
  absl::StatusOr<Control::AdmissionStatus> standing =
      control->Admit(*options.admission, static_cast<uint32_t>(ranks), options.device_memory_bytes);
  // The daemon no longer knows a session that was ended.
  const bool ended = segments.state()->header.phase.load(std::memory_order_acquire) ==
                     static_cast<uint32_t>(shm::Phase::kEnded);
  if (!standing.ok() && ended) return JobEnded();
  return standing;
}

absl::Status SessionImpl::TellWait(const Control::AdmissionStatus& standing) const {
  if (!options.admission->on_wait) return absl::OkStatus();
  return options.admission->on_wait(Describe(standing));
}

void SessionImpl::AddQueued(absl::Duration waited) {
  if (waited <= absl::ZeroDuration() || fork_guard->in_child()) return;
  segments.client()->counters.queued_nanoseconds.fetch_add(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(waited)), std::memory_order_relaxed);
}

// The daemon decides how long to wait for the job's other ranks.
absl::Status SessionImpl::AwaitAdmission(absl::Time began) {
  const absl::Time asked = base::MonotonicNow();
  absl::Duration pause = kFirstPause;
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(const Control::AdmissionStatus standing, AskAdmission());
    const absl::Duration waited = base::MonotonicNow() - began;
    if (standing.admitted) {
      AddQueued(base::MonotonicNow() - asked);
      return absl::OkStatus();
    }
    GEMINID_RETURN_IF_ERROR(TellWait(standing));
    const bool queued = standing.state != "gathering";
    if (queued && waited >= options.admission->patience) {
      return absl::DeadlineExceededError(absl::StrCat(
          "waited ", absl::FormatDuration(absl::Trunc(waited, absl::Milliseconds(100))),
          " for memory: ", Describe(standing),
          "; wait longer, ask for less, or see 'geminictl ls jobs'"));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

// A job that does not create its arenas in time loses its admission, and waits again.
absl::Status SessionImpl::AwaitArena() {
  const absl::Time began = base::MonotonicNow();
  bool tried_again = false;  // since the last admission
  while (true) {
    if (options.admission.has_value()) {
      GEMINID_RETURN_IF_ERROR(AwaitAdmission(began));
    }
    if (options.device_memory_bytes == 0) return absl::OkStatus();
    absl::Status made = MakeArena();
    if (!absl::IsFailedPrecondition(made) || !options.admission.has_value()) return made;
    GEMINID_ASSIGN_OR_RETURN(const Control::AdmissionStatus standing, AskAdmission());
    // The admission may have been lost and granted again in between.
    if (standing.admitted && tried_again) return made;
    tried_again = standing.admitted;
  }
}

bool YieldAsked(const Session& session) {
  return SessionImpl::Of(session).segments.state()->header.yield.load(std::memory_order_acquire) !=
         0;
}

void AddQueued(Session& session, absl::Duration waited) {
  SessionImpl::Of(session).AddQueued(waited);
}

absl::Status GiveArenaBack(Session& session) {
  SessionImpl& impl = SessionImpl::Of(session);
  const std::lock_guard lock(impl.memory_mutex);
  GEMINID_RETURN_IF_ERROR(impl.device->ReleaseSlabs());
  return impl.control->ReleaseArena();
}

absl::StatusOr<ArenaWait> TakeArenaAgain(Session& session) {
  SessionImpl& impl = SessionImpl::Of(session);
  for (bool tried = false;; tried = true) {
    GEMINID_ASSIGN_OR_RETURN(const Control::AdmissionStatus standing, impl.AskAdmission());
    if (!standing.admitted) return ArenaWait{.taken = false, .ended = impl.TellWait(standing)};
    const std::lock_guard lock(impl.memory_mutex);
    absl::Status made = impl.MakeArena();
    if (made.ok()) return ArenaWait{.taken = true, .ended = absl::OkStatus()};
    // The admission may have been lost and granted again in between.
    if (tried || !absl::IsFailedPrecondition(made)) return made;
  }
}

}  // namespace geminid
