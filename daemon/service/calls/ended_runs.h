// Runs of jobs that a person has ended, for ranks that are about to start again.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_ENDED_RUNS_H_
#define GEMINID_DAEMON_SERVICE_CALLS_ENDED_RUNS_H_

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>

#include "daemon/core/basics/time.h"

namespace geminid::service {

// A rank that dies takes the others with it. Those may end before they hear that the job was ended,
// and then only this note keeps their launcher from starting the run anew. Thread-safe.
class EndedRuns {
 public:
  struct Run {
    std::string tenant;
    std::string job;
    std::string run;
    bool operator==(const Run&) const = default;
  };
  // A launcher starts ranks again within seconds. Later another run may have the same name.
  static constexpr core::Duration kRemembered = core::Duration::Seconds(60);
  // The oldest are forgotten first.
  static constexpr size_t kMost = 4096;

  void Note(const Run& run, core::Time now);
  bool Has(const Run& run, core::Time now);

 private:
  struct Ended {
    Run run;
    core::Time at;
  };
  void Forget(core::Time now);

  std::mutex mutex_;
  std::deque<Ended> ended_;  // in order of time
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_ENDED_RUNS_H_
