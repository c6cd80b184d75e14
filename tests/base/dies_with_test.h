// Children of a test that end where the test is killed.
#ifndef GEMINID_TESTS_BASE_DIES_WITH_TEST_H_
#define GEMINID_TESTS_BASE_DIES_WITH_TEST_H_

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace geminid::base {

// Called in the child after fork: the kernel kills the child, and the program that it becomes, once
// the thread that forked has ended. `test`: the test's process.
inline void DieWithTest(pid_t test) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != test) _exit(127);  // the test died before the line above
}

}  // namespace geminid::base

#endif  // GEMINID_TESTS_BASE_DIES_WITH_TEST_H_
