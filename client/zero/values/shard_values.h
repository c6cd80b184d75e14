// Reads and writes each kind of state of this rank's shard as fp32, wherever the state is stored.
#ifndef GEMINID_CLIENT_ZERO_VALUES_SHARD_VALUES_H_
#define GEMINID_CLIENT_ZERO_VALUES_SHARD_VALUES_H_

#include <cstdint>
#include <mutex>
#include <span>

#include "absl/status/status.h"
#include "client/zero/state/shard_parts.h"
#include "client/zero/state/state_store.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Usable on any thread, for granules that are not being updated.
class ShardValues {
 public:
  // `store` outlives it.
  explicit ShardValues(const StateStore& store) : store_(store) {}

  // Whether a granule has this kind of state.
  bool Has(uint32_t granule, StateKind kind) const;
  // One kind of a shard part's state. A part without that kind reads as zeros and ignores writes.
  // State on the device is accessed after the computations queued there.
  absl::Status Read(const ShardPart& part, StateKind kind, std::span<float> values) const;
  absl::Status Write(const ShardPart& part, StateKind kind, std::span<const float> values) const;
  // Guards access to all parts of one granule together: DiskState::Turn, if the state is on disk.
  std::unique_lock<std::mutex> LockDisk() const;
  // The reduced gradient of a part.
  absl::Status ReadGradient(const ShardPart& part, std::span<float> values) const;
  absl::Status WriteGradient(const ShardPart& part, std::span<const float> values) const;

 private:
  bool IsOnDisk(uint32_t granule, StateKind kind) const;
  absl::Status ReadFrom(const StateView& view, const ShardPart& part, StateKind kind,
                        std::span<float> values) const;
  absl::Status WriteTo(const StateView& view, const ShardPart& part, StateKind kind,
                       std::span<const float> values) const;

  const StateStore& store_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_VALUES_SHARD_VALUES_H_
