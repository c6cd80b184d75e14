// What the library's own upper layers need of a session, and its users do not.
#ifndef GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_
#define GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_

#include <functional>
#include <string>

#include "client/device/device.h"
#include "geminid/session.h"
#include "proto/shm/commit_layout.h"

namespace geminid {

// Mapped for as long as the session lives. See commit_layout.h for who may write what.
shm::CommitSegment* CommitSegmentOf(Session& session);
shm::ClientCounters* CountersOf(Session& session);

// The device that its arena is on, which lives as long as the session.
device::Device* DeviceOf(Session& session);

// It has started the daemon itself, which ends with this process.
bool OwnsDaemon(const Session& session);

// It may have a predecessor, and a successor: it notes for that one what is whole.
bool IsOfRun(const Session& session);
// CANCELLED where the job was ended on request. Asks nobody: what the daemon said last.
absl::Status EndedOnRequest(const Session& session);
// Its end leaves all that it has to the successor: nothing is to be freed.
bool IsLeft(const Session& session);
// A name for files of this rank, job and run, other than those of any other user's; empty where the
// session is of no run.
std::string NameOfRank(const Session& session);
std::string NameOfRank(const std::string& job, int rank, const std::string& run);
// Its memory outlives this process, for a successor.
bool IsKept(const Session& session);
// To be called before the session's memory is freed with the session's end, and not where that is
// left to a successor.
void AtDetach(Session& session, std::function<void()> call);
// What one Allocate of a predecessor made, if it was asked for exactly `specs`: the same chunks
// with their contents, and device copies where they were. NOT_FOUND if there is none such.
absl::StatusOr<std::vector<ChunkHandle>> Claim(Session& session,
                                               const std::vector<ChunkSpec>& specs);
// Frees what a predecessor left and nobody has claimed.
absl::Status FreeUnclaimed(Session& session);

// What this process may still take of host memory: its share of what the ranks of its job on this
// node may have, less what it holds. What a predecessor left counts as free.
absl::StatusOr<uint64_t> HostRoom(Session& session);

// How many requests the daemon was sent, and how many of them it has taken.
struct RequestPace {
  uint64_t sent = 0;
  uint64_t taken = 0;
};
RequestPace RequestPaceOf(const Session& session);

// The arena has one user at a time, who places chunks there as if nobody else did. False: it has
// one already.
bool ClaimArena(Session& session);
void UnclaimArena(Session& session);
bool IsArenaClaimed(const Session& session);

// Whether the daemon asks for the arena, for a job of higher priority or for the operator.
bool YieldAsked(const Session& session);
// Nothing may lie in the arena, or be under way. Its addresses stay the session's. Only with
// ConnectOptions::admission.
absl::Status GiveArenaBack(Session& session);
struct ArenaWait {
  bool taken = false;  // the arena is there as before, of no contents
  absl::Status ended;  // what Admission::on_wait ended the wait with
};
// Asks once whether the job is admitted again, and tells on_wait if it is not.
absl::StatusOr<ArenaWait> TakeArenaAgain(Session& session);
// Adds to Session::Queued.
void AddQueued(Session& session, absl::Duration waited);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_
