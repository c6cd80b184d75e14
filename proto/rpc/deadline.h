// Deadlines of gRPC calls. gRPC's usual ones are times of the wall clock; these are not.
#ifndef GEMINID_PROTO_RPC_DEADLINE_H_
#define GEMINID_PROTO_RPC_DEADLINE_H_

#include <grpc/support/time.h>
#include <grpcpp/support/time.h>

#include "absl/time/time.h"

namespace geminid::rpc {

// The time after `timeout` by the monotonic clock, so a step of the wall clock does not move it.
// gRPC accepts it wherever it takes a deadline.
inline gpr_timespec DeadlineIn(absl::Duration timeout) {
  const absl::Duration bounded = timeout < absl::ZeroDuration() ? absl::ZeroDuration() : timeout;
  if (bounded == absl::InfiniteDuration()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(bounded), GPR_TIMESPAN));
}

}  // namespace geminid::rpc

#endif  // GEMINID_PROTO_RPC_DEADLINE_H_
