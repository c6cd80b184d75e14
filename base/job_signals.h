// Signals that come to all processes of a job at once.
#ifndef GEMINID_BASE_JOB_SIGNALS_H_
#define GEMINID_BASE_JOB_SIGNALS_H_

#include <signal.h>

namespace geminid::base {

// The warnings by which batch systems announce an end. By default they end a process.
inline constexpr int kWarningSignals[] = {SIGUSR1, SIGUSR2, SIGXCPU};

// A batch system or a service manager that ends a job signals each process of it, and a terminal
// each one that runs in it. For programs that end with another one, which is to save before.
inline void IgnoreWarnings() {
  for (const int warning : kWarningSignals) signal(warning, SIG_IGN);
}
inline void IgnoreJobSignals() {
  for (const int wish : {SIGHUP, SIGINT, SIGTERM}) signal(wish, SIG_IGN);
  IgnoreWarnings();
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_JOB_SIGNALS_H_
