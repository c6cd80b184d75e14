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

// SIGHUP, SIGINT, SIGTERM; and the warnings by which batch systems announce an end, SIGUSR1,
// SIGUSR2 and SIGXCPU.
inline constexpr int kStopSignals[] = {1, 2, 15, 10, 12, 24};

std::string SignalName(int signal);  // "SIGINT"
bool IsWarning(int signal);          // of a batch system

// kStopSignals, but for SIGHUP where it is ignored: whoever starts a program by nohup wants it to
// go on without its terminal. (SIGINT is ignored in every background job of a script, and still
// asks.)
sigset_t WatchedSignals();

enum class StopAction { kNone, kAskToStop, kEndAtOnce };

// What to do at each signal. A warning asks for an end, as often as it comes: what follows it, such
// as the SIGTERM at the limit itself, is a first wish.
class StopPolicy {
 public:
  // One wish often comes more than once: timeout(1) signals a process and then its group, a service
  // manager all processes of a service, and a launcher passes on what its ranks got themselves.
  static constexpr absl::Duration kSameWish = absl::Milliseconds(500);

  StopAction OnSignal(int signal, absl::Time now);
  int first() const { return first_; }  // 0: none yet

 private:
  int first_ = 0;
  std::optional<absl::Time> first_wish_;  // when it came
};

// Watches the signals on a thread of its own, so that no system call of another is interrupted.
class StopSignals {
 public:
  struct Options {
    // A second one is left to the parent, which ends this process then. What a terminal sends comes
    // to both, and what the parent passes on may come at any time after.
    bool second_is_parents = false;
    // While nothing is done yet that could be saved, a signal ends the process at once.
    bool nothing_to_save = false;
    std::function<void(const std::string&)> write_stderr = nullptr;  // null: says nothing
  };

  // Blocks the signals for this thread and for those it makes from now on. Call it before there are
  // others.
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
