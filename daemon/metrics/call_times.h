// How long the calls of each method took, and how they ended.
#ifndef GEMINID_DAEMON_METRICS_CALL_TIMES_H_
#define GEMINID_DAEMON_METRICS_CALL_TIMES_H_

#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "daemon/core/basics/time.h"
#include "daemon/metrics/reading.h"

namespace geminid::metrics {

// Thread-safe. Add takes a mutex briefly; its cost is logarithmic in the number of methods.
class CallTimes {
 public:
  // `path` is gRPC's, such as "/geminid.v1.ChunkService/Allocate"; the method's label is then
  // "ChunkService/Allocate". After kMaxMethods methods, calls of further ones are not counted.
  void Add(const std::string& path, core::Duration took, absl::StatusCode code);
  std::map<std::string, CallReading> Read() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, CallReading> calls_;  // guarded by mutex_
};

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_CALL_TIMES_H_
