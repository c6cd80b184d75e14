// The kinds of state of this rank's shard as fp32, wherever and in whatever form they lie.
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

// Any thread, for granules that are not being updated.
class ShardValues {
 public:
  // `store` outlives it.
  explicit ShardValues(const StateStore& store) : store_(store) {}

  // Whether a granule has this kind of state.
  bool Has(uint32_t granule, StateKind kind) const;
  // One kind of state of a part. What it has none of is zero, and writing to it does nothing. State
  // on the device: after what is being computed there.
  absl::Status Read(const ShardPart& part, StateKind kind, std::span<float> values) const;
  absl::Status Write(const ShardPart& part, StateKind kind, std::span<const float> values) const;
  // For all parts of a granule together: DiskState::Turn, where that is.
  std::unique_lock<std::mutex> Turn() const;
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
