// Reads granules on disk one after the other into the places of updates, the next ones while one is
// used. While no update is in progress.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_DISK_READS_H_
#define GEMINID_CLIENT_ZERO_UPDATE_DISK_READS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/disk/extent_io.h"
#include "client/zero/state/disk_state.h"
#include "client/zero/state/state_store.h"

namespace geminid::zero {

class DiskReads {
 public:
  // `granules`: in the order in which they are asked for. The store outlives it.
  DiskReads(const StateStore& store, std::vector<uint32_t> granules);
  ~DiskReads();  // waits for reads under way
  DiskReads(const DiskReads&) = delete;
  DiskReads& operator=(const DiskReads&) = delete;

  // The state of the next granule, until the next call. Not to be called after an error, nor more
  // often than there are granules.
  absl::StatusOr<StateView> Next();

 private:
  const DiskPlace& PlaceOf(size_t read) const { return places_[read % places_.size()]; }
  void StartAhead();

  const StateStore& store_;
  DiskState& disk_;
  const std::vector<DiskPlace>& places_;
  const std::vector<uint32_t> granules_;
  std::vector<disk::ExtentIo::Ticket> coming_;  // by granule: those that were asked for
  size_t came_ = 0;
  absl::Status flushed_;  // of what the trainer set before
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_DISK_READS_H_
