// The terminal that a process was started in.
#ifndef GEMINID_DAEMON_OS_TERMINAL_H_
#define GEMINID_DAEMON_OS_TERMINAL_H_

#include "base/unique_fd.h"

namespace geminid::os {

// The controlling terminal; invalid if there is none, as under a service manager.
base::UniqueFd OpenControllingTerminal();

// True once the window was closed or the line was cut. `terminal` becomes readable then.
bool HasHungUp(const base::UniqueFd& terminal);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_TERMINAL_H_
