// gloo writes to sockets without MSG_NOSIGNAL: a dead peer would end this process by SIGPIPE.
#ifndef GEMINID_COLLECTIVES_GLOO_SIGPIPE_GUARD_H_
#define GEMINID_COLLECTIVES_GLOO_SIGPIPE_GUARD_H_

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace geminid::collectives {

// While it lives this thread gets no SIGPIPE, and neither does any thread that it starts, for good.
// The rest of the process and its handlers are left alone.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeGuard() {
    // Take the signal that came meanwhile, or it would strike when it is let through again.
    if (!was_pending_ && sigismember(&before_, SIGPIPE) == 0) {
      const timespec now = {};
      (void)sigtimedwait(&sigpipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_SIGPIPE_GUARD_H_
