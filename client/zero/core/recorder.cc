#include "client/zero/core/recorder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/hash/hash.h"

namespace geminid::zero {

void Recorder::BeginMoment(std::vector<uint32_t> chunks, std::vector<uint32_t> kept) {
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  events_.emplace_back();
  events_.back().chunks = std::move(chunks);
  events_.back().kept = std::move(kept);
}

void Recorder::NoteUse(uint32_t chunk) {
  if (events_.empty()) return;
  std::vector<uint32_t>& chunks = events_.back().chunks;
  const auto at = std::lower_bound(chunks.begin(), chunks.end(), chunk);
  if (at == chunks.end() || *at != chunk) chunks.insert(at, chunk);
}

void Recorder::NoteWorkspace(uint64_t extent_bytes) {
  if (events_.empty()) return;
  events_.back().workspace_bytes = std::max(events_.back().workspace_bytes, extent_bytes);
}

void Recorder::NoteCompute(double seconds) {
  if (!events_.empty()) events_.back().compute_seconds += seconds;
}

void Recorder::SetCompute(size_t moment, double seconds) {
  if (moment < events_.size()) events_[moment].compute_seconds = seconds;
}

void Recorder::NoteGradient(uint32_t chunk) {
  if (!events_.empty()) events_.back().gradients.push_back(chunk);
}

void Recorder::NoteReduced(uint32_t chunk) {
  if (!events_.empty()) events_.back().reduced.push_back(chunk);
}

std::vector<Moment> Recorder::Moments() const {
  std::vector<Moment> moments;
  std::set<uint32_t> pinned;  // chunks that hold a part of a gradient
  for (const Event& event : events_) {
    std::set<uint32_t> used(event.chunks.begin(), event.chunks.end());
    used.insert(pinned.begin(), pinned.end());
    pinned.insert(event.gradients.begin(), event.gradients.end());
    for (uint32_t chunk : event.reduced) pinned.erase(chunk);
    Moment moment;
    moment.kept = event.kept;
    moment.workspace_bytes = event.workspace_bytes;
    moment.compute_seconds = event.compute_seconds;
    for (uint32_t chunk : used) {
      const bool invalidates =
          std::find(event.reduced.begin(), event.reduced.end(), chunk) != event.reduced.end();
      moment.uses.push_back({chunk, invalidates});
    }
    moments.push_back(std::move(moment));
  }
  return moments;
}

std::optional<uint64_t> Recorder::Fingerprint() const {
  if (empty()) return std::nullopt;
  size_t hash = 0;
  for (const Moment& moment : Moments()) {
    hash = absl::HashOf(hash, moment.uses.size());
    for (const Moment::Use& use : moment.uses)
      hash = absl::HashOf(hash, use.chunk, use.invalidates);
  }
  return hash;
}

std::vector<uint32_t> Recorder::FirstUseOrder() const {
  std::vector<uint32_t> order;
  std::set<uint32_t> seen;
  for (const Event& event : events_) {
    for (uint32_t chunk : event.chunks) {
      if (seen.insert(chunk).second) order.push_back(chunk);
    }
  }
  return order;
}

}  // namespace geminid::zero
