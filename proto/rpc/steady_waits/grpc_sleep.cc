// Replaces gRPC's own function of this name, in this program and in the libraries that it loads.
#include <grpc/support/time.h>
#include <time.h>

// The threads on which gRPC calls us back sleep here for a tenth of a second when they have nothing
// to do (completion_queue_cc.cc of gRPC 1.51). A sleep ends at a time of the wall clock. If that
// clock steps back, gRPC's own function sleeps longer by the step, and the daemon answers nobody.
// Callers look for work after each sleep, so a sleep may be shorter than they wanted.
extern "C" __attribute__((visibility("default"))) void gpr_sleep_until(gpr_timespec until) {
  constexpr int64_t kMostMilliseconds = 100;
  gpr_timespec rest = gpr_time_sub(until, gpr_now(until.clock_type));
  if (gpr_time_cmp(rest, gpr_time_0(GPR_TIMESPAN)) <= 0) return;
  const gpr_timespec most = gpr_time_from_millis(kMostMilliseconds, GPR_TIMESPAN);
  if (gpr_time_cmp(rest, most) > 0) rest = most;
  const timespec relative = {.tv_sec = rest.tv_sec, .tv_nsec = rest.tv_nsec};
  nanosleep(&relative, nullptr);
}
