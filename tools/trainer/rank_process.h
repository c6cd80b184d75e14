// One rank as a child process: its pid, what it says on stderr, and that it is done.
#ifndef GEMINID_TOOLS_TRAINER_RANK_PROCESS_H_
#define GEMINID_TOOLS_TRAINER_RANK_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::trainer {

// Tells a rank the descriptor of a pipe: a byte says that the whole run is done, and only the
// rank's end is left. It counts however that end comes.
inline constexpr char kDoneVariable[] = "GEMINID_DONE_FD";

// Move-only. Destroying it kills a child that still runs.
class RankProcess {
 public:
  // Starts `program` with stderr on a pipe, kDoneVariable, the given signal mask, and SIGKILL if
  // this process dies.
  static absl::StatusOr<RankProcess> Start(int rank, const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment,
                                           const sigset_t& signal_mask);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool running() const { return pid_ >= 0 && !wait_status_; }

  // For poll: readable when the child has ended, and when it said something. -1 once it is over.
  int process_fd() const { return wait_status_ ? -1 : process_fd_; }
  int stderr_fd() const { return stderr_fd_; }

  // Takes what can be read now without waiting; closes the pipe at its end.
  std::string ReadStderr();
  // Collects the exit status, and whether it said that it was done, if the child has ended.
  void Reap();
  void Signal(int signal) const;

  // After the end: how it ended, as waitpid says.
  std::optional<int> wait_status() const { return wait_status_; }
  bool said_done() const { return said_done_; }
  // "exited with code 7", "was killed by signal 9 (Killed)".
  std::string DescribeEnd() const;
  const std::string& last_words() const { return last_words_; }

 private:
  RankProcess(int rank, pid_t pid, int process_fd, int stderr_fd, base::UniqueFd done_fd)
      : rank_(rank),
        pid_(pid),
        process_fd_(process_fd),
        stderr_fd_(stderr_fd),
        done_fd_(std::move(done_fd)) {}

  int rank_ = 0;
  pid_t pid_ = -1;
  int process_fd_ = -1;
  int stderr_fd_ = -1;
  base::UniqueFd done_fd_;
  std::optional<int> wait_status_;
  bool said_done_ = false;
  std::string last_words_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_RANK_PROCESS_H_
