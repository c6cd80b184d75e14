// The deadline of engines that are to run into it.
#ifndef GEMINID_TESTS_CLIENT_ZERO_DEADLINE_H_
#define GEMINID_TESTS_CLIENT_ZERO_DEADLINE_H_

#include "absl/time/time.h"

namespace geminid::zero {

// What does not stand still must not run into it first, on a busy machine either.
inline constexpr absl::Duration kDeadline = absl::Seconds(2);

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_DEADLINE_H_
