// Children of a test that end when the test is killed.
#ifndef GEMINID_TESTS_BASE_DIES_WITH_TEST_H_
#define GEMINID_TESTS_BASE_DIES_WITH_TEST_H_

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace geminid::base {

// Call this in the child after fork. The kernel then kills the child, and the program that it
// executes, when the thread that forked ends. `test` is the test's process.
inline void DieWithTest(pid_t test) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != test) _exit(127);  // the test died before the line above
}

}  // namespace geminid::base

#endif  // GEMINID_TESTS_BASE_DIES_WITH_TEST_H_
