// What can be read of the engine without waiting for a call in progress.
#include <array>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/core/extent.h"
#include "client/zero/engine/engine_impl.h"

namespace geminid::zero {

absl::Status EngineImpl::health() const {
  GEMINID_RETURN_IF_ERROR(CheckNotForked(*setup_.session));
  absl::Status known = published_.health();
  return known.ok() ? residency_->mover().status() : known;
}

// Called when a call ends. Does nothing before the engine is complete or after it has ended.
void EngineImpl::Publish() {
  if (step_ == nullptr || *self_ == nullptr) return;
  Published::Basis basis{.host_bytes = standing_.host_bytes,
                         .device_bytes = store_->device_bytes(),
                         .tally = plans_->tally()};
  if (published_.IsOf(basis)) return;
  Statistics statistics = StatisticsOf(basis);
  published_.Set(std::move(basis), std::move(statistics));
}

Statistics EngineImpl::StatisticsOf(const Published::Basis& basis) const {
  Statistics statistics;
  statistics.parameters = setup_.layout.used_elements;
  statistics.model_state_bytes = store_->model_state_bytes();
  statistics.device_state_bytes = basis.device_bytes;
  for (uint32_t chunk = 0; chunk < setup_.layout.chunks.size(); ++chunk) {
    statistics.state_chunks_on_device += store_->on_device(chunk) ? 1 : 0;
    statistics.state_chunks_streamed += store_->streamed(chunk) ? 1 : 0;
  }
  statistics.host_bytes = basis.host_bytes;
  statistics.arena_bytes = setup_.session->arena_bytes();
  statistics.chunks = setup_.layout.chunks.size();
  statistics.chunk_elements = setup_.layout.chunk_elements;
  statistics.waste_ratio =
      static_cast<double>(setup_.layout.padding_elements) /
      static_cast<double>(setup_.layout.padding_elements + setup_.layout.used_elements);
  basis.tally.AddTo(plans_->plan(), &statistics);
  return statistics;
}

uint64_t EngineImpl::DeviceBytes(std::span<const ParameterId> weights,
                                 std::span<const ParameterId> gradients) const {
  const Lock lock(mutex_);
  std::set<uint32_t> chunks;
  for (const ParameterId id : weights) {
    if (setup_.CheckId(id).ok()) chunks.insert(setup_.ChunkOf(id));
  }
  for (const ParameterId id : gradients) {
    if (setup_.CheckId(id).ok()) chunks.insert(book_->StorageOf(setup_.ChunkOf(id)));
  }
  uint64_t bytes = 0;
  for (const uint32_t chunk : chunks) {
    bytes += RoundUpToExtent(setup_.layout.chunks[book_->owners()[chunk]].bytes());
  }
  return bytes;
}

absl::StatusOr<Statistics> EngineImpl::GetStatistics() {
  GEMINID_RETURN_IF_ERROR(CheckNotForked(*setup_.session));
  Statistics statistics = published_.statistics();
  const ArenaMeter::Reading reading = residency_->meter().Read();
  statistics.model_bytes = reading.model_bytes;
  statistics.workspace_bytes = reading.workspace_bytes;
  statistics.peak_model_bytes = reading.peak_model_bytes;
  statistics.peak_workspace_bytes = reading.peak_workspace_bytes;
  statistics.peak_total_bytes = reading.peak_total_bytes;
  statistics.model_bytes_at_peak = reading.model_bytes_at_peak;
  const TransferTotals totals = setup_.session->Totals();
  statistics.host_to_device_bytes = totals.host_to_device_bytes;
  statistics.device_to_host_bytes = totals.device_to_host_bytes;
  statistics.state_disk = standing_.why_on_disk;
  statistics.disk_written_bytes = store_->disk_count()->bytes().load();
  if (const DiskState* disk = store_->disk(); disk != nullptr) {
    statistics.state_disk_bytes = disk->file_bytes();
    statistics.disk_read_bytes = disk->read_bytes();
    absl::StrAppend(&statistics.state_disk, statistics.state_disk.empty() ? "" : "; ", disk->how());
  }
  if (const OffloadedActivations* activations = residency_->activations(); activations != nullptr) {
    statistics.activation_place_bytes = activations->place_bytes();
    statistics.activation_bytes = activations->returned_bytes();
  }
  if (const SavedActivations* saved = residency_->saved_activations(); saved != nullptr) {
    statistics.activation_place_bytes = saved->place_bytes();
    statistics.activation_bytes = saved->returned_bytes();
    statistics.host_bytes += saved->host_bytes();
  }
  links_->AddTo(&statistics);
  statistics.queued_seconds = absl::ToDoubleSeconds(setup_.session->Queued());
  const std::array<absl::Duration, kStallCauses> stalls = setup_.session->Stalls();
  for (int cause = 0; cause < kStallCauses; ++cause) {
    const double seconds = absl::ToDoubleSeconds(stalls[cause]);
    statistics.stall_seconds += seconds;
    statistics.stall_seconds_by_cause.emplace_back(shm::Name(static_cast<shm::StallCause>(cause)),
                                                   seconds);
  }
  return statistics;
}

std::optional<PlanInForce> EngineImpl::GetPlan() const {
  const Lock lock(mutex_);
  if (plans_->plan() == nullptr) return std::nullopt;
  PlanInForce made{.trace = plans_->planned_trace(), .plan = *plans_->plan(), .names = {}};
  for (uint32_t i = 0; i < made.trace.chunks.size(); ++i) made.names.push_back(NameOfGathered(i));
  return made;
}

}  // namespace geminid::zero
