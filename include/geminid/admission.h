// How a job requests memory from the daemon when there may not be enough for all jobs.
#ifndef GEMINID_ADMISSION_H_
#define GEMINID_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace geminid {

// The daemon admits either all or none of the job's ranks on this node. It then reserves what they
// request, including the arenas. All ranks pass the same values, except the memory.
struct Admission {
  std::string run{};               // tells runs of one job name apart; at most 63 characters
  int priority = 0;                // from -100 to 100; the daemon may limit the tenant further
  uint64_t host_memory_bytes = 0;  // for this rank; it may use more while there is free memory
  unsigned weight = 1;             // share of the links among the tenant's jobs; at most 1000
  // The longest wait in the queue. 0: refused at once if the job does not fit now.
  absl::Duration patience = absl::InfiniteDuration();
  // The arena may be reclaimed for a job of higher priority: zero::Engine gives it back after a
  // step, waits, and continues bit-identically. Set it only if such an engine drives the session.
  bool preemptible = false;
  // Called about twice a second on the waiting thread while the job waits, at its start or after a
  // preemption. `what` says what it waits for. An error ends the wait: Connect returns it, or the
  // engine's Step sets StepResult::wait_ended.
  std::function<absl::Status(const std::string& what)> on_wait{};
};

}  // namespace geminid

#endif  // GEMINID_ADMISSION_H_
