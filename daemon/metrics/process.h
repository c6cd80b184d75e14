// What the kernel says about this process.
#ifndef GEMINID_DAEMON_METRICS_PROCESS_H_
#define GEMINID_DAEMON_METRICS_PROCESS_H_

#include "daemon/metrics/reading.h"

namespace geminid::metrics {

// Reads /proc/self. What cannot be read is left out.
ProcessReading ReadProcess();

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_PROCESS_H_
