// Whether a step ended with a gradient that is not finite after some of its updates were made, so
// that it can be neither committed nor given up. What this project's trainer asks.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_DIVERGED_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_DIVERGED_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace geminid::zero {

inline constexpr char kDivergedPayload[] = "geminid/diverged";

inline absl::Status MarkDiverged(absl::Status status) {
  status.SetPayload(kDivergedPayload, absl::Cord());
  return status;
}

inline bool HasDiverged(const absl::Status& failed) {
  return failed.GetPayload(kDivergedPayload).has_value();
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_DIVERGED_H_
