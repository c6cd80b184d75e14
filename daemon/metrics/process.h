// Numbers that the kernel has about this process.
#ifndef GEMINID_DAEMON_METRICS_PROCESS_H_
#define GEMINID_DAEMON_METRICS_PROCESS_H_

#include "daemon/metrics/reading.h"

namespace geminid::metrics {

// Reads /proc/self. Leaves out every number that it cannot read.
ProcessReading ReadProcess();

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_PROCESS_H_
