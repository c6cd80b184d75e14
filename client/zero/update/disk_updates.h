// Updates state on disk by the host. A granule is read into a place in host memory, updated there,
// and written to its spare extent. Meanwhile the next granule is updated, and the granules after it
// are read.
//
// Before its flip, a granule's update writes only to the spare extent and to places.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_DISK_UPDATES_H_
#define GEMINID_CLIENT_ZERO_UPDATE_DISK_UPDATES_H_

#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "client/disk/extent_io.h"
#include "client/zero/state/disk_state.h"
#include "client/zero/state/state_store.h"
#include "client/zero/update/granule_optimizer.h"
#include "client/zero/update/updates_ahead.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::zero {

class DiskUpdates final : public UpdatesAhead {
 public:
  // Both outlive this object; the store has state on disk.
  DiskUpdates(StateStore* store, const GranuleOptimizer& optimizer);
  ~DiskUpdates() override;  // waits for reads in progress
  DiskUpdates(const DiskUpdates&) = delete;
  DiskUpdates& operator=(const DiskUpdates&) = delete;

  void Add(uint32_t granule) override;
  absl::Status FinishFirst(uint64_t epoch, kernels::ThreadPool* pool) override;
  absl::Status WaitUpdates() override { return absl::OkStatus(); }

 private:
  // A granule that was read, or is being read, into a place.
  struct PlacedGranule {
    GranuleOnDisk granule{};
    const DiskPlace* place = nullptr;
    disk::ExtentIo::Ticket coming = 0;
    bool updated = false;
  };

  void FillPlaces();
  // Waits until the state has been read, then updates and seals it in its place.
  absl::Status Update(PlacedGranule* placed, uint64_t epoch, kernels::ThreadPool* pool);
  absl::Status WriteFirst(uint64_t epoch, kernels::ThreadPool* pool);

  StateStore& store_;
  DiskState& disk_;
  const GranuleOptimizer& optimizer_;
  absl::Status status_;           // the first error of earlier writes
  std::deque<uint32_t> waiting_;  // granules without a place yet
  std::deque<PlacedGranule> placed_;
  uint64_t granules_placed_ = 0;  // ever; granules take the places in turn
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_DISK_UPDATES_H_
