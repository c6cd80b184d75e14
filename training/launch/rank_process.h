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

// Tells a rank the descriptor of a pipe: a byte says that the whole run is done, and only the
// rank's end is left. It counts however that end comes.
inline constexpr char kDoneVariable[] = "GEMINID_DONE_FD";

// Move-only. Destroying it kills a child that still runs.
class RankProcess {
 public:
  // Starts `program` with stderr on a pipe, kDoneVariable, the given signal mask, the descriptors
  // `inherited`, and SIGKILL if this process dies.
  static absl::StatusOr<RankProcess> Start(int rank, const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment,
                                           const sigset_t& signal_mask, std::vector<int> inherited);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  RankState& state() { return state_; }
  bool running() const { return pid_ >= 0 && state_.running(); }

  // For poll: readable when the child has ended, and when it said something. -1 once it is over.
  int process_fd() const { return running() ? process_fd_ : -1; }
  int stderr_fd() const { return stderr_fd_; }

  // Takes what can be read now without waiting, and collects the exit status and whether it said
  // that it was done, if the child has ended.
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
