// Decides after each start of a run's ranks whether there is another start, of how many ranks, and
// at which host. Pure.
#ifndef GEMINID_TRAINING_LAUNCH_COURSE_H_
#define GEMINID_TRAINING_LAUNCH_COURSE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "training/launch/handover_memory.h"
#include "training/launch/restarts.h"

namespace geminid::trainer {

struct Start {
  int ranks = 1;
  std::string host{};  // as in Handover; empty: the host where the run began
  std::string job_id;  // changes with the ranks: no start resumes what others left
  Restarts restarts;
};

// How a start ended. All of its ranks have ended.
struct StartEnd {
  bool failed = false;
  bool may_pass = false;   // a restart may avoid this failure
  bool done = false;       // the run is done
  int signal = 0;          // the stop signal that was passed on to the ranks; 0: none
  absl::Time failed_at{};  // time of the failure
  std::string why{};       // the failure: "rank 1 (pid 4711) was killed by signal 9 (Killed)"
  std::optional<Handover> handover = std::nullopt;  // whose state is complete
};

struct CourseOptions {
  int ranks = 1;
  int restarts = 0;
  int restarts_made = 0;
  int min_ranks = 0;  // the fewest ranks with which the run may go on; 0: all of them
  std::function<bool(int ranks)> fits{};  // whether batch and mesh allow this number; null: always
  std::function<std::string()> new_job_id{};
};

class Course {
 public:
  explicit Course(CourseOptions options);

  const Start& start() const { return start_; }
  // Chooses the next start, which start() returns from then on. Returns the line to print before
  // that start; nothing: there is no next start.
  std::optional<std::string> After(const StartEnd& end);

 private:
  std::string HandOver(const StartEnd& end);
  std::optional<std::string> AfterUntouched(const StartEnd& end);
  std::optional<std::string> Restart(const StartEnd& end);
  std::optional<std::string> Shrink(const StartEnd& end);
  void ChangeRanks(int ranks, const std::string& host);
  int Fewer() const;

  // The limit of starts from one handed-over state, and of starts that only hand over after a
  // death.
  static constexpr int kMostTries = 3;

  const CourseOptions options_;
  Start start_;
  uint64_t taken_ = 0;       // the number of the last handover from whose state a start began
  std::string host_before_;  // the host where the ranks left that state
  int tries_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_COURSE_H_
