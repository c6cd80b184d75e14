// Stable addresses of chunks (Options::stable_addresses). Each address is mapped while its chunk is
// on the device.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_CHUNK_VIEWS_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_CHUNK_VIEWS_H_

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/device/device.h"

namespace geminid::zero {

// Thread-safe. Calls only the device.
class ChunkViews {
 public:
  // `views`: by chunk, its index among the device's views; empty: no views. Both outlive this.
  ChunkViews(device::Device* device, const std::vector<uint64_t>& views,
             std::vector<uint64_t> bytes)
      : device_(*device), views_(views), bytes_(std::move(bytes)), shown_(views.size()) {}

  // Call when the chunk's contents are there: before, earlier users may still use its old place.
  absl::Status Show(uint32_t chunk, uint64_t arena_offset) {
    if (views_.empty()) return absl::OkStatus();
    const std::lock_guard lock(mutex_);
    shown_[chunk] = true;
    return device_.MapView(views_[chunk], arena_offset, bytes_[chunk]);
  }
  absl::Status Hide(uint32_t chunk) {
    if (views_.empty()) return absl::OkStatus();
    const std::lock_guard lock(mutex_);
    if (all_stay_ || !shown_[chunk]) return absl::OkStatus();
    shown_[chunk] = false;
    return device_.UnmapView(views_[chunk], bytes_[chunk]);
  }
  // Views are hidden no more. `fill`: views without a chunk get memory.
  void KeepAll(bool fill) {
    const std::lock_guard lock(mutex_);
    all_stay_ = true;
    for (uint32_t chunk = 0; fill && chunk < views_.size(); ++chunk) {
      if (!shown_[chunk]) shown_[chunk] = device_.FillView(views_[chunk], bytes_[chunk]).ok();
    }
  }

 private:
  device::Device& device_;
  const std::vector<uint64_t>& views_;
  const std::vector<uint64_t> bytes_;
  std::mutex mutex_;
  std::vector<bool> shown_;
  bool all_stay_ = false;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_CHUNK_VIEWS_H_
