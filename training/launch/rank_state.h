// The state of a rank that was started, on any host: running, ended, and how.
#ifndef GEMINID_TRAINING_LAUNCH_RANK_STATE_H_
#define GEMINID_TRAINING_LAUNCH_RANK_STATE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

namespace geminid::trainer {

class RankState {
 public:
  // `host` is empty for this host.
  RankState(int rank, std::string host) : rank_(rank), host_(std::move(host)) {}

  void Started(pid_t pid) { pid_ = pid; }
  void AddWords(const std::string& text);
  // `wait_status` is as waitpid returns it; `said_done` as kDoneVariable describes.
  void Ended(int wait_status, bool said_done);
  // Marks the rank as lost: nobody can find out how it ended. Does nothing if it has ended.
  void Lost(const std::string& why);

  int rank() const { return rank_; }
  const std::string& host() const { return host_; }
  pid_t pid() const { return pid_; }  // on its host; -1: not known yet
  bool running() const { return !wait_status_ && !lost_; }

  // After the end exactly one of these two is set.
  std::optional<int> wait_status() const { return wait_status_; }
  bool lost() const { return lost_.has_value(); }
  bool said_done() const { return said_done_; }

  // "rank 3 (pid 512)", "rank 3 (pid 512 on node-b)".
  std::string Describe() const;
  // "exited with code 7", "was killed by signal 9 (Killed)", "was lost with its host: ...".
  std::string DescribeEnd() const;
  // The rank's output on stderr: the end of it, and everything since the last call.
  const std::string& last_words() const { return last_words_; }
  std::string TakeNewWords() { return std::exchange(new_words_, std::string()); }

 private:
  int rank_ = 0;
  std::string host_;
  pid_t pid_ = -1;
  std::optional<int> wait_status_;
  std::optional<std::string> lost_;
  bool said_done_ = false;
  std::string last_words_;
  std::string new_words_;
};

// --- what the end of a rank that has ended says about the run ------------------------------------

// A lower value is more likely to be the reason why the job failed.
inline constexpr int kMissingGuilt = 2;
inline constexpr int kStoppedGuilt = 3;
int Guilt(const RankState& rank);

// The code of an end that is not this rank's own failure: all ranks end with this code together.
std::optional<int> AgreedEnd(int wait_status);

// Whether the rank says that a person ended the job, which must then not be restarted.
bool IsOnRequest(const RankState& rank);

// Whether a restart may avoid this failure.
bool IsPassing(const RankState& rank);

// The last lines, each indented.
std::string Indented(const std::string& words);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RANK_STATE_H_
