// The deadline of engines that a test lets time out.
#ifndef GEMINID_TESTS_CLIENT_ZERO_DEADLINE_H_
#define GEMINID_TESTS_CLIENT_ZERO_DEADLINE_H_

#include "absl/time/time.h"

namespace geminid::zero {

// On a busy machine, engines that make progress must not reach it either.
inline constexpr absl::Duration kDeadline = absl::Seconds(2);

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_DEADLINE_H_
