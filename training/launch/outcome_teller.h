// Tells a daemon the outcome of requests to move, in a thread of its own. The daemon may not
// answer, and the thread that speaks with other hosts must not wait for it.
#ifndef GEMINID_TRAINING_LAUNCH_OUTCOME_TELLER_H_
#define GEMINID_TRAINING_LAUNCH_OUTCOME_TELLER_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "training/launch/rank_host.h"

namespace geminid::trainer {

class OutcomeTeller {
 public:
  // Makes one call to the daemon. UNAVAILABLE and DEADLINE_EXCEEDED: the daemon did not get the
  // outcome. ABORTED: a person has ended the job.
  using Call = std::function<absl::Status(const MoveOutcome&)>;
  // The thread begins with the first outcome.
  explicit OutcomeTeller(Call call) : call_(std::move(call)) {}
  // Tells the waiting outcomes first. From then on an outcome is dropped after kTries calls that
  // failed. Before, this holds only for the state "taken": a person waits for the other outcomes.
  ~OutcomeTeller();
  OutcomeTeller(const OutcomeTeller&) = delete;
  OutcomeTeller& operator=(const OutcomeTeller&) = delete;

  static constexpr int kTries = 3;
  // Drops an outcome that equals the last one which waits.
  void Tell(const MoveOutcome& outcome);
  // Whether a call has returned ABORTED.
  bool job_ended() const { return job_ended_; }

 private:
  void Run();
  void TellOne(const MoveOutcome& outcome);

  const Call call_;
  std::atomic<bool> job_ended_ = false;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<MoveOutcome> waiting_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_OUTCOME_TELLER_H_
