// Runs of geminid-train whose ranks are threads of the test, with a daemon in the test's process.
//
// A run's results do not depend on whether its ranks are processes, and a process costs more than a
// small model's computation. Tests of launching, signals and exit codes need RunTrainer
// (command.h).
#ifndef GEMINID_TESTS_TOOLS_TRAINER_RANK_THREADS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_RANK_THREADS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace geminid::trainer {

class RankThreads {
 public:
  // Starts the daemon for all runs; fails the test if this fails. Removes GEMINID_DEVICE from the
  // environment.
  RankThreads();
  ~RankThreads();

  // Trains or evaluates as `geminid-train arguments` does, with all ranks of the flags, and a
  // report. Returns the failure of a rank with the run's output. A rank that only stopped for
  // another one does not count.
  absl::Status Train(const std::vector<std::string>& arguments);

 private:
  struct Daemon;
  const std::unique_ptr<Daemon> daemon_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_RANK_THREADS_H_
