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
  std::string host{};  // as Handover has it; empty: where the run began
  std::string job_id;  // another one for each number of ranks: nobody takes up what others left
  Restarts restarts;
};

// How a start ended: all of its ranks have.
struct StartEnd {
  bool failed = false;
  bool may_pass = false;   // the failure: another start may not meet it again
  bool done = false;       // the run
  int signal = 0;          // that was passed on to the ranks, as whoever runs this wants an end
                           // with the state saved
  absl::Time failed_at{};  // of the failure
  std::string why{};       // likewise: "rank 1 (pid 4711) was killed by signal 9 (Killed)"
  std::optional<Handover> handover = std::nullopt;  // the state that is in memory
};

struct CourseOptions {
  int ranks = 1;
  int restarts = 0;
  int restarts_made = 0;
  int min_ranks = 0;                      // with how many the run may go on at least; 0: with all
  std::function<bool(int ranks)> fits{};  // batch and mesh; null: any number does
  std::function<std::string()> new_job_id{};
};

class Course {
 public:
  explicit Course(CourseOptions options);

  const Start& start() const { return start_; }
  // What to say before the next start, which start() is from then on; nothing: there is none.
  std::optional<std::string> After(const StartEnd& end);

 private:
  std::string HandOver(const StartEnd& end);
  std::optional<std::string> AfterUntouched(const StartEnd& end);
  std::optional<std::string> Restart(const StartEnd& end);
  std::optional<std::string> Shrink(const StartEnd& end);
  void ChangeRanks(int ranks, const std::string& host);
  int Fewer() const;

  // From one state that was handed over, or to hand one over after a death.
  static constexpr int kMostTries = 3;

  const CourseOptions options_;
  Start start_;
  uint64_t taken_ = 0;  // the number of the last handover whose state a start was for
  std::string host_before_;  // where that was left
  int tries_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_COURSE_H_
