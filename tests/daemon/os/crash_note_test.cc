#include "daemon/os/crash_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <string>

namespace geminid::os {
namespace {

struct Ended {
  int signal = 0;
  uint64_t note = 0;
};

// A child that watches for crashes, with a note, and calls `act`.
Ended End(const std::function<void()>& act) {
  // Not a base::Mapping, because a forked child would not inherit it.
  void* const memory = ::mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* const word = new (memory) std::atomic<uint64_t>(0);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core = {};
    (void)::setrlimit(RLIMIT_CORE, &no_core);
    // A daemon has no handlers of a sanitizer or of the test's library.
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) ::signal(signal, SIG_DFL);
    WatchForCrashes();
    const CrashNote note(word);
    act();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  const Ended ended = {WIFSIGNALED(status) ? WTERMSIG(status) : 0, word->load()};
  ::munmap(memory, sizeof(*word));
  return ended;
}

TEST(CrashNote, ProcessThatFaults_IsNotedAndEndsByThatSignal) {
  const Ended ended = End([] { *static_cast<volatile int*>(nullptr) = 1; });
  EXPECT_EQ(ended.signal, SIGSEGV);
  EXPECT_EQ(ended.note, 1u);
}

TEST(CrashNote, ProcessThatAborts_IsNotedAndEndsByThatSignal) {
  const Ended ended = End([] { std::abort(); });
  EXPECT_EQ(ended.signal, SIGABRT);
  EXPECT_EQ(ended.note, 1u);
}

TEST(CrashNote, ProcessThatTouchesMemoryWithoutAPage_IsNotedAndSaysWhich) {
  ::testing::internal::CaptureStderr();
  const Ended ended = End([] {
    const int memory = ::memfd_create("of-the-test", MFD_CLOEXEC);
    void* const page = ::mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    *static_cast<volatile char*>(page) = 1;
  });
  const std::string words = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(ended.signal, SIGBUS);
  EXPECT_EQ(ended.note, 1u);
  EXPECT_THAT(words, ::testing::StartsWith("geminid: SIGBUS: there is no page of memory at"));
  EXPECT_THAT(words, ::testing::HasSubstr("in /memfd:of-the-test"));
}

// systemd's watchdog sends this signal.
TEST(CrashNote, ProcessThatAWatchdogEnds_IsNoted) {
  const Ended ended = End([] { ::kill(::getpid(), SIGABRT); });
  EXPECT_EQ(ended.signal, SIGABRT);
  EXPECT_EQ(ended.note, 1u);
}

TEST(CrashNote, ProcessThatIsKilledOrToldToEnd_IsNot) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    const Ended ended = End([signal] { ::raise(signal); });
    EXPECT_EQ(ended.signal, signal);
    EXPECT_EQ(ended.note, 0u);
  }
}

TEST(CrashNote, ProcessWhoseNoteIsGone_EndsAsEver) {
  const Ended ended = End([] {
    std::atomic<uint64_t> own = 0;
    { const CrashNote later(&own); }
    std::abort();
  });
  EXPECT_EQ(ended.signal, SIGABRT);
  EXPECT_EQ(ended.note, 0u);
}

}  // namespace
}  // namespace geminid::os
