// Whether a step was refused since it would write more to disk than StateDisk::endurance_bytes
// allows: on all ranks, and nothing has changed. What this project's trainer asks.
#ifndef GEMINID_CLIENT_ZERO_STATE_DISK_SPENT_H_
#define GEMINID_CLIENT_ZERO_STATE_DISK_SPENT_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace geminid::zero {

inline constexpr char kDiskSpentPayload[] = "geminid/disk_spent";

inline absl::Status MarkDiskSpent(absl::Status status) {
  status.SetPayload(kDiskSpentPayload, absl::Cord());
  return status;
}

inline bool IsDiskSpent(const absl::Status& refused) {
  return refused.GetPayload(kDiskSpentPayload).has_value();
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_SPENT_H_
