// Tells the next daemon that this process crashed: that it ended by its own fault, and not because
// somebody killed it.
#ifndef GEMINID_DAEMON_OS_CRASH_NOTE_H_
#define GEMINID_DAEMON_OS_CRASH_NOTE_H_

#include <atomic>
#include <cstdint>

namespace geminid::os {

// From now on a signal of a fault or of a watchdog (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) first
// stores 1 into the word of the last CrashNote, if that lives. SIGBUS also writes a line to
// standard error (base::WriteBusError). Then the signal ends the process as usual. Signals that
// have a handler keep it. A stack overflow is not noted, because this handler has no stack of its
// own.
void WatchForCrashes();

// The word to store into. Other processes see it, and it must outlive this object; null: none.
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
