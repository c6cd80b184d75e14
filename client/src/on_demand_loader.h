// Loads chunks when they are used. Tracks which loads are in progress, and which device copies must
// be written back before they can be evicted.
#ifndef GEMINID_CLIENT_SRC_ON_DEMAND_LOADER_H_
#define GEMINID_CLIENT_SRC_ON_DEMAND_LOADER_H_

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "client/src/transfers.h"
#include "geminid/session.h"

namespace geminid {

// Thread-safe.
class OnDemandLoader {
 public:
  // `session` owns this.
  OnDemandLoader(Session* session, Transfers* transfers)
      : session_(session), transfers_(transfers) {}

  // See Session::Use.
  absl::StatusOr<Lease> Use(ChunkId chunk, absl::Duration timeout);

  // A transfer that loads a whole chunk from its own home and publishes it; Use waits for it.
  static bool IsLoad(const TransferSpec& spec, uint64_t chunk_bytes);
  Pending Load(const TransferSpec& spec);

  // See Session::WriteBack.
  Pending WriteBack(ChunkId chunk);

  // A hold is being given back, after the daemon was told that the device copy is newer than the
  // home.
  void NoteDirtyRelease(ChunkId chunk);
  // The hold has been given back.
  void NoteReleased(ChunkId chunk);
  void Forget(ChunkId chunk);

 private:
  // A load in progress, shared by all threads that wait for it.
  struct Loading {
    std::shared_ptr<Pending::State> outcome;
    std::atomic<shm::ErrorReason> refusal = shm::ErrorReason::kNone;
  };

  std::shared_ptr<Loading> StartOrJoin(const TransferSpec& spec, bool may_join);
  // Copies the whole chunk between its home and the device.
  TransferSpec WholeChunk(ChunkId chunk, TransferCause cause) const;
  // Removes loads that are complete.
  void TidyLocked();
  absl::Status AfterRefusal(ChunkId chunk, const Loading& load, const absl::Status& status,
                            const base::Deadline& deadline);
  std::optional<ChunkId> TakeOldestDirty();

  Session* const session_;
  Transfers* const transfers_;
  std::mutex mutex_;
  std::map<ChunkId, std::shared_ptr<Loading>> loads_;  // guarded by mutex_
  std::list<ChunkId> dirty_;                           // guarded by mutex_; oldest first
  std::map<ChunkId, uint32_t> releasing_;              // guarded by mutex_; returning holds
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_ON_DEMAND_LOADER_H_
