#include "daemon/os/crash_note.h"

#include <signal.h>

#include "base/bus_error.h"

namespace geminid::os {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

std::atomic<std::atomic<uint64_t>*> note{nullptr};
static_assert(std::atomic<std::atomic<uint64_t>*>::is_always_lock_free);

// The handler is reset before it runs (SA_RESETHAND). Afterwards the faulting instruction faults
// again, and abort() raises again. A signal that another process sent is raised again here.
void OnFatalSignal(int signal, siginfo_t* info, void*) {
  if (std::atomic<uint64_t>* const word = note.load()) word->store(1);
  if (signal == SIGBUS) base::WriteBusError("geminid", *info);
  if (info->si_code <= 0) (void)::raise(signal);
}

}  // namespace

void WatchForCrashes() {
  for (const int signal : kFatal) {
    struct sigaction before = {};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_sigaction = OnFatalSignal;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    (void)::sigaction(signal, &action, nullptr);
  }
}

CrashNote::CrashNote(std::atomic<uint64_t>* word) : word_(word) { note.store(word_); }

CrashNote::~CrashNote() { note.compare_exchange_strong(word_, nullptr); }

}  // namespace geminid::os
