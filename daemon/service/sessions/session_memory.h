// Makes memory for sessions, and frees it.
//
// Memory is charged first, under the mutex; then made and passed to the client, without it; and
// only then becomes the session's. If a step fails, the memory is taken back from the client before
// its charge ends. Chunks are entered, checked and freed in slices, between which the event loop
// can take the mutex.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_MEMORY_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/memory/admission.h"
#include "daemon/service/sessions/reclaimer.h"
#include "daemon/service/sessions/session_hub_options.h"
#include "daemon/service/sessions/session_statistics.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"

namespace geminid::service {

struct CreatedArena {
  uint64_t bytes = 0;
  uint32_t slabs = 0;
};

// Thread-safe. For the threads of gRPC: calls last as long as it takes to populate the memory.
class SessionMemory {
 public:
  // All arguments must outlive it.
  SessionMemory(const SessionHubOptions* options, SessionTable* table, SessionStore* store,
                SessionStatistics* statistics, Reclaimer* reclaimer)
      : options_(options),
        table_(table),
        store_(store),
        statistics_(statistics),
        reclaimer_(reclaimer) {}

  // See SessionHub for each.
  absl::StatusOr<core::Allocation> Allocate(const SessionPtr& session,
                                            const std::vector<core::ChunkSpec>& specs,
                                            uint64_t number, bool again);
  absl::Status Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks, bool again);
  absl::StatusOr<core::Allocation> Claim(const SessionPtr& session,
                                         const std::vector<core::ChunkSpec>& specs,
                                         uint64_t number);
  absl::Status FreeOlder(const SessionPtr& session, uint64_t number);
  absl::StatusOr<CreatedArena> CreateArena(const SessionPtr& session, uint64_t bytes, bool again);
  absl::Status ReleaseArena(const SessionPtr& session, bool again);
  absl::StatusOr<uint64_t> HostShare(const SessionPtr& session);
  void CancelPopulating() { cancelled_.store(true); }

 private:
  using Locked = SessionTable::Locked;

  // The options of all the session's pools and slabs: the beginning of their names, the NUMA node.
  memory::PoolOptions PoolOptionsOf(const ClientSession& session);
  // Make, pass and enter what was promised. On failure *made holds what exists already.
  absl::StatusOr<core::Allocation> MakePool(const SessionPtr& session, const core::Promise& promise,
                                            Garbage* made);
  absl::StatusOr<CreatedArena> MakeArena(const SessionPtr& session, const core::Promise& promise,
                                         Garbage* made);
  absl::Status MakeSlabs(const ClientSession& session, uint64_t bytes, Garbage* made);
  absl::StatusOr<core::Allocation> EnterChunks(const SessionPtr& session,
                                               const core::Promise& promise, Garbage* made);
  absl::Status FreeMadeBy(const SessionPtr& session, uint64_t first, uint64_t last);
  absl::Status FreeInSlices(const SessionPtr& session, std::vector<shm::ChunkId> chunks);
  void Abandon(const core::Promise& promise, Garbage garbage);
  void NoteAllocation(shm::Tier tier, core::Time began);

  const SessionHubOptions* const options_;
  SessionTable* const table_;
  SessionStore* const store_;
  SessionStatistics* const statistics_;
  Reclaimer* const reclaimer_;
  std::atomic<bool> cancelled_{false};
  memory::Admission admission_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_MEMORY_H_
