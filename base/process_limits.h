// Limits of descriptors, threads and places to write to: found before the work begins, and said
// with how to raise them.
#ifndef GEMINID_BASE_PROCESS_LIMITS_H_
#define GEMINID_BASE_PROCESS_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"

namespace geminid::base {

// Raises the soft limit of descriptors to the hard one: the usual 1024 is for select(2).
void RaiseDescriptorLimit();

// RESOURCE_EXHAUSTED if a process of this user may have fewer descriptors than `count`.
absl::Status CheckDescriptors(size_t count);

// RESOURCE_EXHAUSTED if this process cannot have so many threads more now: libraries that miss one
// end the process. They are started, and end at once.
absl::Status ProbeThreads(size_t count);

// The same error; where it is one of a limit that the message does not name, with the limit and how
// to raise it.
absl::Status WithLimits(const absl::Status& status);

}  // namespace geminid::base

#endif  // GEMINID_BASE_PROCESS_LIMITS_H_
