// Signals that all processes of a job get at the same time.
#ifndef GEMINID_BASE_JOB_SIGNALS_H_
#define GEMINID_BASE_JOB_SIGNALS_H_

#include <signal.h>

namespace geminid::base {

// Batch systems send these before they end a job. By default they end a process.
inline constexpr int kWarningSignals[] = {SIGUSR1, SIGUSR2, SIGXCPU};

// Signals that have no meaning for a daemon, but end a process by default: for timers that it does
// not set, and from devices that it does not have.
inline constexpr int kStraySignals[] = {SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT};

// For programs that others depend on: only SIGTERM, SIGINT or another process's end stops them.
inline void IgnoreStraySignals() {
  for (const int stray : kStraySignals) signal(stray, SIG_IGN);
}

// A batch system or a service manager that ends a job signals all its processes, and a terminal its
// foreground processes. For programs that end with another one, which must save first.
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
