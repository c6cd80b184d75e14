#include "daemon/os/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace geminid::os {
namespace {

constexpr int kMostNice = 19;
constexpr uint64_t kSliceNanoseconds = 300'000;  // the kernel's own is about ten times as long

// As the kernel has it in <linux/sched/types.h>, which does not go together with <sched.h>.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;
  uint64_t deadline = 0;
  uint64_t period = 0;
};

}  // namespace

void GiveWay() {
  // The process's priority at its start, whatever this thread's is now.
  static const int start = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::getpid()));
  SchedulingAttributes attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = std::min(start + kNicerBy, kMostNice);
  attributes.runtime = kSliceNanoseconds;
  if (::syscall(SYS_sched_setattr, 0, &attributes, 0) == 0) return;
  (void)::setpriority(PRIO_PROCESS, 0, attributes.nice);  // if a filter allows only this call
}

}  // namespace geminid::os
