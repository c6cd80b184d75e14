// From a status, and from the state of standard output, to the exit code of a program.
#ifndef GEMINID_BASE_EXIT_STATUS_H_
#define GEMINID_BASE_EXIT_STATUS_H_

#include <ostream>

#include "absl/status/status.h"
#include "base/exit_code.h"

namespace geminid::base {

ExitCode ExitCodeOf(absl::StatusCode code);

// A status that ends the daemon after its command line was understood.
DaemonExitCode DaemonExitCodeOf(absl::StatusCode code);

// Flushes `out`, which is standard output. An error if anything written to it got lost: a full disk
// or a closed descriptor is known only now. Every program calls it before it says that all is well.
// A reader that has left, as head(1) does, has what it wanted: that is no error.
absl::Status FinishOutput(std::ostream& out);

}  // namespace geminid::base

#endif  // GEMINID_BASE_EXIT_STATUS_H_
