// How a job asks the daemon for its memory, where there may not be enough for everybody.
#ifndef GEMINID_ADMISSION_H_
#define GEMINID_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace geminid {

// The ranks of the job on this node are admitted together, or none; what they ask for, the arena
// included, is promised to them. The same for all ranks, but for the memory.
struct Admission {
  std::string run{};               // keeps two runs of one job name apart; at most 63 characters
  int priority = 0;                // from -100 to 100, at most what the daemon allows the tenant
  uint64_t host_memory_bytes = 0;  // for this rank; more is given as far as there is some
  unsigned weight = 1;             // of the links, beside the tenant's other jobs; at most 1000
  // For how long it may wait in the queue. 0: refused at once where it does not fit now.
  absl::Duration patience = absl::InfiniteDuration();
  // Its arena may be asked for, for a job of higher priority: zero::Engine gives it back after a
  // step, waits, and goes on with the same bits. Only where such an engine drives the session.
  bool preemptible = false;
  // Called on the waiting thread, twice a second or so, while the job waits: at the start, and when
  // it was preempted. What it waits for, in words. An error ends the wait: Connect returns it, and
  // the engine's Step says StepResult::wait_ended.
  std::function<absl::Status(const std::string& what)> on_wait{};
};

}  // namespace geminid

#endif  // GEMINID_ADMISSION_H_
