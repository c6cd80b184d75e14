// Runs of geminid-train whose ranks are threads of the test, with a daemon in the test's process.
//
// What a run computes does not depend on whether its ranks are processes, and a process costs more
// than what a small model computes. Launching, signals and exit codes need RunTrainer (command.h).
#ifndef GEMINID_TESTS_TOOLS_TRAINER_RANK_THREADS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_RANK_THREADS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace geminid::trainer {

class RankThreads {
 public:
  // Starts the daemon, on which all runs have their sessions; fails the test if it cannot. Removes
  // GEMINID_DEVICE from the environment.
  RankThreads();
  ~RankThreads();

  // Trains, or evaluates, as `geminid-train arguments` does: with all ranks that the flags ask for,
  // and a report.
  // Returns the failure of a rank, not of one that only stopped for another, with what the run
  // said.
  absl::Status Train(const std::vector<std::string>& arguments);

 private:
  struct Daemon;
  const std::unique_ptr<Daemon> daemon_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_RANK_THREADS_H_
