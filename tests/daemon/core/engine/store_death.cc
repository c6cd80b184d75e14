#include "tests/daemon/core/engine/store_death.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>

namespace geminid::core {
namespace {

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kPossible = true;
#else
constexpr bool kPossible = false;
#endif

const std::map<std::byte*, size_t>* watched = nullptr;
int stores_left = 0;
sigjmp_buf way_out;
struct sigaction old_fault;
struct sigaction old_step;

void Protect(int protection) {
  for (const auto& [pages, bytes] : *watched) {
    if (::mprotect(pages, bytes, protection) != 0) std::abort();
  }
}

#ifdef __x86_64__
constexpr greg_t kTrapFlag = 0x100;

bool IsWatched(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const auto& [pages, bytes] : *watched) {
    if (byte >= pages && byte < pages + bytes) return true;
  }
  return false;
}

void OnFault(int, siginfo_t* info, void* context) {
  if (!IsWatched(info->si_addr)) {
    ::sigaction(SIGSEGV, &old_fault, nullptr);  // the fault repeats, and is the program's own
    return;
  }
  Protect(PROT_READ | PROT_WRITE);
  if (stores_left-- == 0) ::siglongjmp(way_out, 1);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}

void OnStep(int, siginfo_t*, void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  Protect(PROT_READ);
}
#else
void OnFault(int, siginfo_t*, void*) {}
void OnStep(int, siginfo_t*, void*) {}
#endif

void Handle(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* old) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  if (::sigaction(signal, &action, old) != 0) std::abort();
}

}  // namespace

StoreDeath::StoreDeath() {
  if (!kPossible) return;
  Handle(SIGSEGV, OnFault, &old_fault);
  Handle(SIGTRAP, OnStep, &old_step);
}

StoreDeath::~StoreDeath() {
  if (!kPossible) return;
  ::sigaction(SIGSEGV, &old_fault, nullptr);
  ::sigaction(SIGTRAP, &old_step, nullptr);
}

bool StoreDeath::IsPossible() { return kPossible; }

void StoreDeath::Watch(std::byte* pages, size_t bytes) { watched_[pages] = bytes; }

void StoreDeath::Forget(std::byte* pages) { watched_.erase(pages); }

bool StoreDeath::DiesAt(int stores, const std::function<void()>& operation) {
  if (!kPossible || stores == kNever) {
    operation();
    return false;
  }
  watched = &watched_;
  stores_left = stores;
  if (sigsetjmp(way_out, 1) != 0) return true;
  Protect(PROT_READ);
  try {
    operation();
  } catch (...) {
    Protect(PROT_READ | PROT_WRITE);
    throw;
  }
  Protect(PROT_READ | PROT_WRITE);
  return false;
}

}  // namespace geminid::core
