// Functions of a session for the library's own upper layers, not for users.
#ifndef GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_
#define GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_

#include <functional>
#include <string>

#include "client/device/device.h"
#include "geminid/session.h"
#include "proto/shm/commit_layout.h"

namespace geminid {

// Mapped while the session lives. commit_layout.h says who may write what.
shm::CommitSegment* CommitSegmentOf(Session& session);
shm::ClientCounters* CountersOf(Session& session);

// The device of the session's arena; lives as long as the session.
device::Device* DeviceOf(Session& session);

// Whether the session started its own daemon, which ends with this process.
bool OwnsDaemon(const Session& session);

// FAILED_PRECONDITION in a forked child of the process that connected the session.
absl::Status CheckNotForked(const Session& session);

// The session belongs to a run, whose processes may follow each other: it records what is whole.
bool IsOfRun(const Session& session);
// CANCELLED if the job was ended on request. Does not call the daemon: reads its last word.
absl::Status EndedOnRequest(const Session& session);
// The session's end leaves everything to a replacement rank: free nothing.
bool IsLeft(const Session& session);
// A file name for this rank, job and run, which no other user's session has. Empty if the session
// belongs to no run.
std::string NameOfRank(const Session& session);
std::string NameOfRank(const std::string& job, int rank, const std::string& run);
// The session's memory outlives this process, for a replacement rank.
bool IsKept(const Session& session);
// `call` runs before the session's end frees its memory; not if the session is left to a
// replacement rank.
void AtDetach(Session& session, std::function<void()> call);
// Takes over what one Allocate of an earlier process made, if it had exactly these `specs`: the
// same chunks with their contents and device copies. NOT_FOUND if there is no such allocation.
absl::StatusOr<std::vector<ChunkHandle>> Claim(Session& session,
                                               const std::vector<ChunkSpec>& specs);
// Frees allocations of an earlier process that were not claimed.
absl::Status FreeUnclaimed(Session& session);

// Host memory that this process may still take: its share of what the job's ranks on this node may
// have, minus what it holds. Unclaimed memory of an earlier process counts as free.
absl::StatusOr<uint64_t> HostRoom(Session& session);

// How many requests were sent to the daemon, and how many it has taken.
struct RequestPace {
  uint64_t sent = 0;
  uint64_t taken = 0;
};
RequestPace RequestPaceOf(const Session& session);

// Waits until no copy of the session is in progress. DEADLINE_EXCEEDED after `timeout`.
absl::Status AwaitTransfers(Session& session, absl::Duration timeout);

// The arena has one user at a time, which places all chunks there. False: it has a user
// already, or an earlier one could not give its memory back.
bool ClaimArena(Session& session);
void UnclaimArena(Session& session);
bool IsArenaClaimed(const Session& session);

// Whether the daemon asks for the arena, for a job of higher priority or for the operator.
bool YieldAsked(const Session& session);
// Nothing may lie in the arena or be copied. The session keeps the arena's addresses. Needs
// ConnectOptions::admission.
absl::Status GiveArenaBack(Session& session);
struct ArenaWait {
  bool taken = false;  // the arena is there as before, without contents
  absl::Status ended;  // the error with which Admission::on_wait ended the wait
};
// Asks once whether the job is admitted again; if not, calls on_wait.
absl::StatusOr<ArenaWait> TakeArenaAgain(Session& session);
// Adds to Session::Queued.
void AddQueued(Session& session, absl::Duration waited);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_SESSION_INTERNAL_H_
