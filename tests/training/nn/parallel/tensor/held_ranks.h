// Ranks whose operations wait for something else that their rank does.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_HELD_RANKS_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_HELD_RANKS_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// What one rank has begun so far: "product 2", or "column AllReduce 1", the first along that axis.
// Any thread.
class Moments {
 public:
  // What is held, and what must have begun before it goes on.
  using Holds = std::map<std::string, std::string>;

  // Forgets what was, and holds these from now on. Nothing is under way.
  void Restart(Holds holds);

  // Counts it, and returns when what holds it back has begun. DEADLINE_EXCEEDED: that never came.
  absl::Status Begin(const std::string& what);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Holds holds_;
  std::map<std::string, int> begun_;
};

// `ranks`, and all subsets that are made of it, named after the axis of a mesh. `moments` outlives
// them.
std::unique_ptr<Communicator> HoldRanks(std::unique_ptr<Communicator> ranks, Moments* moments);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_HELD_RANKS_H_
