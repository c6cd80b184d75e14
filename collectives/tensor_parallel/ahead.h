// A loop whose next step is fetched while this one is used.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_AHEAD_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_AHEAD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace geminid::collectives {

// fetch(0); then for each step use(step), and beside it, on a thread of its own, fetch(step + 1).
// The two may run at once, so they share no communicator and no buffer. Where no thread can be
// started they run in turn. Stops at the first error, after both have returned.
absl::Status FetchAhead(int steps, absl::FunctionRef<absl::Status(int)> fetch,
                        absl::FunctionRef<absl::Status(int)> use);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_AHEAD_H_
