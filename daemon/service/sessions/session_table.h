// The sessions of this node, the engine that decides about their memory, and the one mutex over
// both.
//
// The event loop's thread and the threads of gRPC meet here. Nobody reaches a session's shared
// state or the engine without a SessionTable::Locked, which holds the mutex for as long as it
// lives. A function that takes a `const Locked&` runs under the mutex. Nothing slow happens there:
// memory is created before the mutex is taken and destroyed after it is released.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_TABLE_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_TABLE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/service/sessions/client_session.h"
#include "daemon/service/sessions/now.h"

namespace geminid::service {

using Sessions = std::map<shm::SessionId, SessionPtr>;

// The engine's view of the segments that daemon and clients share. Used under the mutex only.
class SharedTables : public core::Tables {
 public:
  void PublishState(shm::SessionId session, shm::ChunkId chunk, uint64_t word) override;
  uint64_t ReadLease(shm::SessionId session, shm::ChunkId chunk) override;
  uint64_t ReadCompletion(shm::SessionId session, uint16_t index) override;
  void PublishYield(shm::SessionId session, bool asked) override;

  Sessions sessions;  // those without a client included, until their memory has ended
};

// The memfd of the manifest, the records of all chunks.
struct ManifestFile {
  base::UniqueFd fd;
  base::Mapping memory;
};

class SessionTable {
 public:
  // `manifest` lies in `file`.
  SessionTable(const core::EngineOptions& options, ManifestFile file, core::Manifest manifest)
      : manifest_file_(std::move(file)),
        epoch_(manifest.epoch()),
        engine_(options, &tables_, std::move(manifest)) {}

  class Locked {
   public:
    core::Engine& engine() const { return table_->engine_; }
    Sessions& sessions() const { return table_->tables_.sessions; }
    // Null: there is no such session any more.
    ClientSession* Find(shm::SessionId id) const {
      const auto found = sessions().find(id);
      return found == sessions().end() ? nullptr : found->second.get();
    }

    // Engine::Check; and that the same sessions have a client here and in the engine.
    absl::Status Check() const;

   private:
    friend class SessionTable;
    Locked(SessionTable* table, std::unique_lock<std::mutex> lock)
        : table_(table), lock_(std::move(lock)) {}

    SessionTable* table_;
    std::unique_lock<std::mutex> lock_;
  };

  Locked Lock() { return Locked(this, std::unique_lock<std::mutex>(mutex_)); }
  // For the event loop, which every client waits for: it comes before the next slice of other work.
  Locked LockForLoop();

  // Work that may be long: calls `slice` under the mutex until it returns true. The event loop can
  // take the mutex between any two slices.
  template <typename Slice>
  void InSlices(Slice slice) {
    while (true) {
      {
        const Locked locked = Lock();
        if (slice(locked)) return;
      }
      YieldToLoop();
    }
  }

  const base::UniqueFd& manifest_fd() const { return manifest_file_.fd; }
  // Counts the daemons of the node so far, as the manifest does.
  uint64_t epoch() const { return epoch_; }

 private:
  void YieldToLoop() const;

  const ManifestFile manifest_file_;
  const uint64_t epoch_;
  std::mutex mutex_;
  std::atomic<int> loop_waits_{0};  // for mutex_
  SharedTables tables_;             // guarded by mutex_
  core::Engine engine_;             // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_TABLE_H_
