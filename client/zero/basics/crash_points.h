// Places at which a process may die and a test makes it die: between two of them a successor finds
// the same. Nothing happens there otherwise.
#ifndef GEMINID_CLIENT_ZERO_BASICS_CRASH_POINTS_H_
#define GEMINID_CLIENT_ZERO_BASICS_CRASH_POINTS_H_

#include <atomic>

namespace geminid::zero {

inline constexpr const char* kCrashPoints[] = {
    "step agreed",      // all gradients of all ranks are kept, and this rank knows it
    "update prepared",  // the spare tensor state is written
    "step noted",       // what it updates with, too
    "step recorded",    // the commit record
    "tensors flipped",  // tensor state
    "slice updated",    // of streamed state, on the device; less than all of it is in the spare
    "extent leaving",   // of state on disk; any of it may be in the spare, or none
    "granule written",  // to the spare extent
    "granule flipped",  // and it is the granule's
    "state claimed",    // a successor has its predecessor's chunks
    "spare brought",    // the state of the device's spare is at a home, which is not its place yet
    "step passed",      // of a rank that was behind: noted, not recorded
    "behind recorded",  // recorded
    "granule resumed",  // the first granules of an interrupted update are flipped
    "resumed",          // all of them
};

using OnCrashPoint = void (*)(const char* point);
inline std::atomic<OnCrashPoint> on_crash_point = nullptr;

inline void CrashPoint(const char* point) {
  if (const OnCrashPoint on = on_crash_point.load(std::memory_order_relaxed); on != nullptr) {
    on(point);
  }
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_CRASH_POINTS_H_
