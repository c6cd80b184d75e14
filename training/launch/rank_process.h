// One rank as a child process: its pid, its output on stderr, and its end.
#ifndef GEMINID_TRAINING_LAUNCH_RANK_PROCESS_H_
#define GEMINID_TRAINING_LAUNCH_RANK_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "training/launch/rank_state.h"

namespace geminid::trainer {

// The variable with a pipe's descriptor. A rank writes one byte to the pipe when the whole run is
// done. The run then counts as done, however the rank ends.
inline constexpr char kDoneVariable[] = "GEMINID_DONE_FD";

// Move-only. Destroying it kills a child that still runs.
class RankProcess {
 public:
  // Starts `program` with a pipe as stderr, kDoneVariable, the given signal mask and the
  // descriptors `inherited`. The child gets SIGKILL if this process dies.
  static absl::StatusOr<RankProcess> Start(int rank, const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment,
                                           const sigset_t& signal_mask, std::vector<int> inherited);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  RankState& state() { return state_; }
  bool running() const { return pid_ >= 0 && state_.running(); }

  // For poll: readable when the child has ended or has written to stderr. -1 once there is
  // nothing more to wait for.
  int process_fd() const { return running() ? process_fd_ : -1; }
  int stderr_fd() const { return stderr_fd_; }

  // Reads the output that is there, without waiting. If the child has ended, collects its exit
  // status and whether it reported that the run is done.
  void Look();
  void Signal(int signal) const;

 private:
  RankProcess(int rank, pid_t pid, int process_fd, int stderr_fd, base::UniqueFd done_fd)
      : state_(rank, ""),
        pid_(pid),
        process_fd_(process_fd),
        stderr_fd_(stderr_fd),
        done_fd_(std::move(done_fd)) {
    state_.Started(pid);
  }
  void ReadStderr();

  RankState state_;
  pid_t pid_ = -1;
  int process_fd_ = -1;
  int stderr_fd_ = -1;
  base::UniqueFd done_fd_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RANK_PROCESS_H_
