#include "client/zero/update/disk_updates.h"

#include <cstring>
#include <functional>

#include "base/status_macros.h"
#include "client/zero/basics/crash_points.h"
#include "kernels/runtime/parallel/pieces.h"

namespace geminid::zero {
namespace {

// Runs bodies on the pool's threads, one index each.
disk::ForEach OnThreadsOf(kernels::ThreadPool* pool) {
  return [pool](size_t count, const std::function<void(size_t)>& body) {
    if (kernels::ThreadsOf(pool) == 1) return disk::ForEachInOrder(count, body);
    pool->Run(count, 1, [&](const kernels::Granule& piece) {
      for (size_t i = piece.begin; i < piece.end; ++i) body(i);
    });
  };
}

}  // namespace

DiskUpdates::DiskUpdates(StateStore* store, const GranuleOptimizer& optimizer)
    : store_(*store), disk_(*store->disk()), optimizer_(optimizer) {}

DiskUpdates::~DiskUpdates() {
  for (const PlacedGranule& placed : placed_) {
    if (!placed.updated) disk_.io().Finish(placed.coming).IgnoreError();
  }
}

// Values that were set before this step must be on the disk before they are read.
void DiskUpdates::Add(uint32_t granule) {
  status_.Update(disk_.Flush());
  waiting_.push_back(granule);
  FillPlaces();
}

void DiskUpdates::FillPlaces() {
  while (!waiting_.empty() && placed_.size() < disk_.places().size()) {
    PlacedGranule placed = {.granule = store_.OnDisk(waiting_.front()),
                            .place = &disk_.places()[granules_placed_ % disk_.places().size()]};
    waiting_.pop_front();
    ++granules_placed_;
    placed.coming = disk_.io().StartRead(placed.granule.extent, placed.place->extent);
    placed_.push_back(placed);
  }
}

// Seals here, so that the disk does not wait for checksums between two writes.
absl::Status DiskUpdates::Update(PlacedGranule* placed, uint64_t epoch, kernels::ThreadPool* pool) {
  if (placed->updated) return absl::OkStatus();
  placed->updated = true;  // even if the update fails
  const GranuleOnDisk& granule = placed->granule;
  const absl::Status came = disk_.io().FinishRead(placed->coming, disk_.KeyOf(granule),
                                                  disk_.MayBeBlank(granule), OnThreadsOf(pool));
  // If the read has lost data, a replacement rank would not find them either.
  store_.NoteRead(came);
  GEMINID_RETURN_IF_ERROR(came);
  // Kernels step all arrays in place, or none of them.
  std::memcpy(placed->place->weight, granule.weight, store_.WeightBytes(granule.granule));
  const StateView there =
      disk_.ViewOf(granule.extent, placed->place->extent, placed->place->weight);
  GEMINID_RETURN_IF_ERROR(optimizer_.UpdateInPlace(granule.granule, there, store_, pool));
  disk_.io().Seal(granule.extent, DiskState::KeyOfUpdate(granule.granule, epoch),
                  placed->place->extent, OnThreadsOf(pool));
  return absl::OkStatus();
}

// Updates the second granule while the first one is written and the third one is read.
absl::Status DiskUpdates::WriteFirst(uint64_t epoch, kernels::ThreadPool* pool) {
  const PlacedGranule& first = placed_.front();
  const uint32_t spare = store_.SpareExtent(first.granule.granule);
  const disk::ExtentIo::Ticket leaving = disk_.io().StartSealed(spare, first.place->extent);
  CrashPoint("extent leaving");
  absl::Status status;
  if (placed_.size() > 1) status = Update(&placed_[1], epoch, pool);
  status.Update(disk_.io().Finish(leaving));
  if (status.ok()) disk_.NoteUpdated(spare);
  return status;
}

absl::Status DiskUpdates::FinishFirst(uint64_t epoch, kernels::ThreadPool* pool) {
  GEMINID_RETURN_IF_ERROR(status_);
  GEMINID_RETURN_IF_ERROR(Update(&placed_.front(), epoch, pool));
  GEMINID_RETURN_IF_ERROR(WriteFirst(epoch, pool));
  const PlacedGranule& first = placed_.front();
  std::memcpy(store_.Spare(first.granule.granule).weight, first.place->weight,
              store_.WeightBytes(first.granule.granule));
  placed_.pop_front();
  FillPlaces();
  return absl::OkStatus();
}

}  // namespace geminid::zero
