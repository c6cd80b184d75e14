// An agreement of ranks on whether all of them can go on, which leaves their communicator usable.
#ifndef GEMINID_CLIENT_ZERO_RANKS_FAILURE_OF_ANY_H_
#define GEMINID_CLIENT_ZERO_RANKS_FAILURE_OF_ANY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "geminid/communicator.h"

namespace geminid::zero {

// A collective. OK if `mine` is OK on all ranks. A rank that failed by itself gets its own error.
// The others get ABORTED with the number and the words of the first such rank. Waits with `timeout`
// if that is longer than the communicator's.
absl::Status FailureOfAny(collectives::Communicator* ranks, const absl::Status& mine,
                          absl::Duration timeout);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_FAILURE_OF_ANY_H_
