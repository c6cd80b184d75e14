// Signals that come to all processes of a job at once.
#ifndef GEMINID_BASE_JOB_SIGNALS_H_
#define GEMINID_BASE_JOB_SIGNALS_H_

#include <signal.h>

namespace geminid::base {

// The warnings by which batch systems announce an end. By default they end a process.
inline constexpr int kWarningSignals[] = {SIGUSR1, SIGUSR2, SIGXCPU};

// What nobody has a reason to send a daemon, and ends a process by default: timers that it does not
// set, and notices of devices that it does not have.
inline constexpr int kStraySignals[] = {SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT};

// For programs that others depend on: they end by SIGTERM and SIGINT, or with another one.
inline void IgnoreStraySignals() {
  for (const int stray : kStraySignals) signal(stray, SIG_IGN);
}

// A batch system or a service manager that ends a job signals each process of it, and a terminal
// each one that runs in it. For programs that end with another one, which is to save before.
inline void IgnoreWarnings() {
  for (const int warning : kWarningSignals) signal(warning, SIG_IGN);
}
inline void IgnoreJobSignals() {
  for (const int wish : {SIGHUP, SIGINT, SIGTERM}) signal(wish, SIG_IGN);
  IgnoreWarnings();
  IgnoreStraySignals();
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_JOB_SIGNALS_H_
