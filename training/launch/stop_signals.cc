#include "training/launch/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/start_thread.h"
#include "base/status_macros.h"

namespace geminid::trainer {

static_assert(kStopSignals[0] == SIGHUP && kStopSignals[1] == SIGINT &&
              kStopSignals[2] == SIGTERM && kStopSignals[3] == SIGUSR1 &&
              kStopSignals[4] == SIGUSR2 && kStopSignals[5] == SIGXCPU);

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

bool IsWarning(int signal) { return signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGXCPU; }

sigset_t WatchedSignals() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : kStopSignals) sigaddset(&watched, signal);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  // A blocked signal would be delivered to the descriptor although it is ignored.
  if (hangup.sa_handler == SIG_IGN) sigdelset(&watched, SIGHUP);
  return watched;
}

StopAction StopPolicy::OnSignal(int signal, absl::Time now) {
  const bool is_first = first_ == 0;
  if (is_first) first_ = signal;
  if (!IsWarning(signal)) {
    if (first_wish_.has_value() && now - *first_wish_ >= kSameWish) return StopAction::kEndAtOnce;
    if (!first_wish_.has_value()) first_wish_ = now;
  }
  return is_first ? StopAction::kAskToStop : StopAction::kNone;
}

absl::StatusOr<std::unique_ptr<StopSignals>> StopSignals::Watch(Options options) {
  const sigset_t watched = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  base::UniqueFd signals(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  base::UniqueFd wake(eventfd(0, EFD_CLOEXEC));
  if (!signals.valid() || !wake.valid()) {
    return absl::ErrnoToStatus(errno, "cannot watch signals");
  }
  std::unique_ptr<StopSignals> watch(
      new StopSignals(std::move(options), std::move(signals), std::move(wake)));
  GEMINID_ASSIGN_OR_RETURN(watch->thread_,
                           base::StartThread([raw = watch.get()] { raw->Loop(); }));
  return watch;
}

StopSignals::StopSignals(Options options, base::UniqueFd signals, base::UniqueFd wake)
    : options_(std::move(options)),
      signals_(std::move(signals)),
      wake_(std::move(wake)),
      nothing_to_save_(options_.nothing_to_save) {}

StopSignals::~StopSignals() {
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void StopSignals::Loop() {
  for (;;) {
    pollfd waiting[] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(waiting, std::size(waiting), -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    signalfd_siginfo info = {};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      OnSignal(static_cast<int>(info.ssi_signo));
    }
  }
}

void StopSignals::OnSignal(int signal) {
  const auto say = [&](const std::string& words) {
    if (options_.write_stderr) options_.write_stderr(words);
  };
  switch (policy_.OnSignal(signal, base::MonotonicNow())) {
    case StopAction::kNone:
      return;
    case StopAction::kAskToStop:
      if (nothing_to_save_) {
        say(absl::StrCat("geminid-train: stopped by ", SignalName(signal),
                         " before there was anything to save\n"));
        _exit(base::kExitSignalBase + signal);
      }
      say(absl::StrCat("geminid-train: ", SignalName(signal),
                       ": ends at the next micro-batch; once more to end at once\n"));
      first_ = signal;
      return;
    case StopAction::kEndAtOnce:
      if (options_.second_is_parents) return;
      say(absl::StrCat("geminid-train: ended at once by a second ", SignalName(signal), "\n"));
      _exit(base::kExitSignalBase + signal);
  }
}

}  // namespace geminid::trainer
