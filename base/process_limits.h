// Checks limits of descriptors, threads and writable folders before the work begins. Messages say
// how to raise them.
#ifndef GEMINID_BASE_PROCESS_LIMITS_H_
#define GEMINID_BASE_PROCESS_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"

namespace geminid::base {

// Raises the soft limit of descriptors to the hard one: the usual 1024 is for select(2).
void RaiseDescriptorLimit();

// RESOURCE_EXHAUSTED if a process of this user may have fewer descriptors than `count`.
absl::Status CheckDescriptors(size_t count);

// RESOURCE_EXHAUSTED if this process cannot open so many more descriptors now: libraries that lack
// one end the process. Opens so many descriptors, and closes them.
absl::Status ProbeDescriptors(size_t count);

// RESOURCE_EXHAUSTED if this process cannot have so many more threads now: libraries that lack one
// end the process. Starts so many threads, which end at once.
absl::Status ProbeThreads(size_t count);

// Returns the error. If a limit caused it that its message does not name, appends that limit and
// how to raise it.
absl::Status WithLimits(const absl::Status& status);

}  // namespace geminid::base

#endif  // GEMINID_BASE_PROCESS_LIMITS_H_
