// Ranks in real processes, which a test can kill.
#ifndef GEMINID_TESTS_COLLECTIVES_FORKED_RANKS_H_
#define GEMINID_TESTS_COLLECTIVES_FORKED_RANKS_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace geminid::collectives {

// Forks one child per rank. Make it before the test starts any thread.
class ForkedRanks {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Tells the parent that the rank has reached a certain point, with the time.
  using Ready = std::function<void()>;
  // Runs in the child. Its return value is the child's result.
  using Body = std::function<std::string(int rank, const Ready& ready)>;

  ForkedRanks(int world_size, const Body& body);
  // Kills and reaps all remaining children.
  ~ForkedRanks();

  // Waits until the rank reports, and returns the time of the report by the machine's clock. The
  // delay until this process reads it is not a property of the rank.
  Time AwaitReady(int rank);
  void Kill(int rank);
  // Stops the rank until Continue(), which may never come.
  void Stop(int rank);
  void Continue(int rank);
  // Whether the rank reports or ends within `time`.
  bool SaysSomethingWithin(int rank, std::chrono::milliseconds time);
  // Waits for the child's end; "ended by signal 9" behind the result if it was killed.
  std::string Result(int rank);

 private:
  void Signal(int rank, int signal);

  struct Child {
    pid_t pid = -1;
    base::UniqueFd pipe{};  // a mark and a Time when ready, then the result
  };
  std::vector<Child> children_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_FORKED_RANKS_H_
