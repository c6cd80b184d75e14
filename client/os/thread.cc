#include "client/os/thread.h"

#include <pthread.h>
#include <signal.h>

namespace geminid {

void PrepareThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&signals, fault);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace geminid
