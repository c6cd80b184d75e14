// How long a destructor waits for a daemon that does not answer.
#ifndef GEMINID_CLIENT_ZERO_BASICS_FAREWELL_H_
#define GEMINID_CLIENT_ZERO_BASICS_FAREWELL_H_

#include "absl/time/time.h"

namespace geminid::zero {

inline constexpr absl::Duration kFarewellTimeout = absl::Seconds(10);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_FAREWELL_H_
