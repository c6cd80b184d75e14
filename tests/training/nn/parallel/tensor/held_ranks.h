// Ranks whose operations wait until another operation of the same rank begins.
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

// Tracks the operations that one rank has begun: "product 2", or "column AllReduce 1" for the first
// one along that axis. Any thread.
class Moments {
 public:
  // Maps a held operation to the operation that must begin before it continues.
  using Holds = std::map<std::string, std::string>;

  // Forgets earlier operations and uses these holds from now on. Call this while nothing runs.
  void Restart(Holds holds);

  // Counts an operation, and returns when the operation that holds it has begun. DEADLINE_EXCEEDED
  // if that one never begins.
  absl::Status Begin(const std::string& what);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Holds holds_;
  std::map<std::string, int> begun_;
};

// Wraps `ranks`, and all subsets that are made of it, which are named after the axis of a mesh.
// `moments` outlives them.
std::unique_ptr<Communicator> HoldRanks(std::unique_ptr<Communicator> ranks, Moments* moments);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_HELD_RANKS_H_
