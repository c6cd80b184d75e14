#include "client/zero/update/disk_reads.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::zero {

DiskReads::DiskReads(const StateStore& store, std::vector<uint32_t> granules)
    : store_(store),
      disk_(*store.disk()),
      places_(disk_.places()),
      granules_(std::move(granules)),
      flushed_(disk_.Flush()) {
  if (flushed_.ok()) StartAhead();
}

DiskReads::~DiskReads() {
  for (; came_ < coming_.size(); ++came_) disk_.io().Finish(coming_[came_]).IgnoreError();
}

// As many as there are places, of which the caller still uses none.
void DiskReads::StartAhead() {
  while (coming_.size() < granules_.size() && coming_.size() < came_ + places_.size()) {
    const uint32_t extent = store_.OnDisk(granules_[coming_.size()]).extent;
    coming_.push_back(disk_.io().StartRead(extent, PlaceOf(coming_.size()).extent));
  }
}

absl::StatusOr<StateView> DiskReads::Next() {
  GEMINID_RETURN_IF_ERROR(flushed_);
  StartAhead();
  const size_t read = came_++;
  const GranuleOnDisk granule = store_.OnDisk(granules_[read]);
  const absl::Status came =
      disk_.io().FinishRead(coming_[read], disk_.KeyOf(granule), disk_.MayBeBlank(granule));
  store_.NoteRead(came);
  GEMINID_RETURN_IF_ERROR(came);
  return disk_.ViewOf(granule.extent, PlaceOf(read).extent, granule.weight);
}

}  // namespace geminid::zero
