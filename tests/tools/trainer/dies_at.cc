// Makes geminid-train die at a crash point, once in a run:
//   GEMINID_TEST_DIE_AT="1 shards handed over"   the rank and the point
//   GEMINID_TEST_DIED=FILE                       the file is made just before
//   GEMINID_TEST_SIGNAL=15                       does not die: sends the launcher this signal;
//                                                SIGKILL ends this process, too
//   GEMINID_TEST_HOLD=FIFO                       does not die: waits until the test opens the FIFO
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "client/zero/basics/crash_points.h"

namespace geminid::zero {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void DieHere(const char* point) {
  if (Variable("GEMINID_TEST_DIE_AT") != Variable("RANK") + " " + point) return;
  const int made =
      open(Variable("GEMINID_TEST_DIED").c_str(), O_CREAT | O_EXCL | O_CLOEXEC | O_WRONLY, 0600);
  if (made < 0) return;
  const std::string hold = Variable("GEMINID_TEST_HOLD");
  if (!hold.empty()) {
    close(open(hold.c_str(), O_RDONLY | O_CLOEXEC));  // blocks until a writer opens it
    return;
  }
  const std::string signal = Variable("GEMINID_TEST_SIGNAL");
  if (signal.empty()) {
    kill(getpid(), SIGKILL);
  } else {
    kill(getppid(), std::stoi(signal));
    while (std::stoi(signal) == SIGKILL)
      pause();  // this process dies with that one, and does nothing more
  }
}

const bool kInstalled = [] {
  on_crash_point.store(DieHere);
  return true;
}();

}  // namespace
}  // namespace geminid::zero
