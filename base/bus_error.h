// Says why SIGBUS ends this process: it touched mapped memory that has no page.
#ifndef GEMINID_BASE_BUS_ERROR_H_
#define GEMINID_BASE_BUS_ERROR_H_

#include <signal.h>

namespace geminid::base {

// Writes one line to standard error: `program`, the address, the name of its mapping, what may have
// taken the page, and what to do. Writes nothing for a SIGBUS that a process has sent. For handlers
// of SIGBUS: async-signal-safe, and reads /proc/self/maps.
void WriteBusError(const char* program, const siginfo_t& info);

// From now on SIGBUS first calls WriteBusError, and then ends the process as usual. A handler that
// exists is kept. `program` is a literal.
void ExplainBusErrors(const char* program);

}  // namespace geminid::base

#endif  // GEMINID_BASE_BUS_ERROR_H_
