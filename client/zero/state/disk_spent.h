// Whether a step was refused because it would exceed StateDisk::endurance_bytes. All ranks refuse
// such a step, and nothing has changed. For this project's trainer.
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
