// Ends a run by a signal: the first signal asks for an end at the next micro-batch, with the work
// saved, and the second one ends the process.
#ifndef GEMINID_TRAINING_LAUNCH_STOP_SIGNALS_H_
#define GEMINID_TRAINING_LAUNCH_STOP_SIGNALS_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace geminid::trainer {

// SIGHUP, SIGINT, SIGTERM; and SIGUSR1, SIGUSR2 and SIGXCPU, by which batch systems announce an
// end.
inline constexpr int kStopSignals[] = {1, 2, 15, 10, 12, 24};

std::string SignalName(int signal);  // "SIGINT"
bool IsWarning(int signal);          // whether a batch system sends it before it ends the job

// kStopSignals, without SIGHUP if it is ignored: with nohup a program must go on without its
// terminal. SIGINT is ignored in every background job of a script, but still counts here.
sigset_t WatchedSignals();

enum class StopAction { kNone, kAskToStop, kEndAtOnce };

// Decides what each signal does. A warning only asks for an end, even if it repeats. A later
// SIGTERM, such as at the time limit itself, then counts as a first request.
class StopPolicy {
 public:
  // One request often arrives more than once. timeout(1) signals a process and then its group. A
  // service manager signals all processes of a service. A launcher passes on signals that its ranks
  // got as well.
  static constexpr absl::Duration kSameWish = absl::Milliseconds(500);

  StopAction OnSignal(int signal, absl::Time now);
  int first() const { return first_; }  // 0: none yet

 private:
  int first_ = 0;
  std::optional<absl::Time> first_wish_;  // when the first request came
};

// Watches the signals in a thread of its own, so that they interrupt no system call of other
// threads.
class StopSignals {
 public:
  struct Options {
    // True: only the parent acts on a second signal, by ending this process. Both get a terminal's
    // signals, and the parent may pass them on at any later time.
    bool second_is_parents = false;
    // True: a signal ends the process at once, because there is nothing to save yet.
    bool nothing_to_save = false;
    std::function<void(const std::string&)> write_stderr = nullptr;  // null: writes nothing
  };

  // Blocks the signals for this thread and for threads that it starts later. Call it before other
  // threads exist.
  static absl::StatusOr<std::unique_ptr<StopSignals>> Watch(Options options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int first() const { return first_; }  // 0: none yet

  void SetNothingToSave(bool nothing) { nothing_to_save_ = nothing; }  // as in Options

 private:
  StopSignals(Options options, base::UniqueFd signals, base::UniqueFd wake);
  void Loop();
  void OnSignal(int signal);

  const Options options_;
  const base::UniqueFd signals_;
  const base::UniqueFd wake_;
  StopPolicy policy_;
  std::atomic<int> first_ = 0;
  std::atomic<bool> nothing_to_save_;
  std::thread thread_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_STOP_SIGNALS_H_
