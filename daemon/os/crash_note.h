// Notes for a successor that this process crashed: that it ended by its own fault, and not because
// somebody killed it.
#ifndef GEMINID_DAEMON_OS_CRASH_NOTE_H_
#define GEMINID_DAEMON_OS_CRASH_NOTE_H_

#include <atomic>
#include <cstdint>

namespace geminid::os {

// From now on a signal that tells of a fault, or that a watchdog sends (SIGSEGV, SIGBUS, SIGILL,
// SIGFPE, SIGABRT), first stores 1 into the word of the last CrashNote, if it lives. Then it ends
// the process as ever. A signal that somebody handles already is left to him. A stack that
// overflows is not noted: the handler has no other.
void WatchForCrashes();

// Where to. The word, which other processes see, outlives this; null: nowhere.
class CrashNote {
 public:
  explicit CrashNote(std::atomic<uint64_t>* word);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

 private:
  std::atomic<uint64_t>* word_;
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_CRASH_NOTE_H_
