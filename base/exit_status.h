// Converts a status, and the state of standard output, to a program's exit code.
#ifndef GEMINID_BASE_EXIT_STATUS_H_
#define GEMINID_BASE_EXIT_STATUS_H_

#include <ostream>

#include "absl/status/status.h"
#include "base/exit_code.h"

namespace geminid::base {

ExitCode ExitCodeOf(absl::StatusCode code);

// For a status that ends the daemon after its command line was accepted.
DaemonExitCode DaemonExitCodeOf(absl::StatusCode code);

// Flushes `out`, which is standard output. Returns an error if any output was lost, since a full
// disk or a closed descriptor shows only now. Every program calls it before it reports success. A
// reader that has left, as head(1) does, is not an error.
absl::Status FinishOutput(std::ostream& out);

}  // namespace geminid::base

#endif  // GEMINID_BASE_EXIT_STATUS_H_
