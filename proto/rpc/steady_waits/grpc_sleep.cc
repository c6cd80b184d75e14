// Takes the place of gRPC's own function of this name, in this program and the libraries it loads.
#include <grpc/support/time.h>
#include <time.h>

// The threads on which gRPC calls us back rest by it for a tenth of a second whenever there is
// nothing to do (completion_queue_cc.cc of gRPC 1.51), until a time of the wall clock: where that
// steps back meanwhile, gRPC's own goes on sleeping for as long, and the daemon answers nobody. Its
// callers ask again what there is to do, so that a rest may be shorter than they wanted.
extern "C" __attribute__((visibility("default"))) void gpr_sleep_until(gpr_timespec until) {
  constexpr int64_t kMostMilliseconds = 100;
  gpr_timespec rest = gpr_time_sub(until, gpr_now(until.clock_type));
  if (gpr_time_cmp(rest, gpr_time_0(GPR_TIMESPAN)) <= 0) return;
  const gpr_timespec most = gpr_time_from_millis(kMostMilliseconds, GPR_TIMESPAN);
  if (gpr_time_cmp(rest, most) > 0) rest = most;
  const timespec relative = {.tv_sec = rest.tv_sec, .tv_nsec = rest.tv_nsec};
  nanosleep(&relative, nullptr);
}
