// The points at which tests make a process die. A replacement finds the same state for every
// instruction between two adjacent points. Outside of tests nothing happens at a point.
#ifndef GEMINID_CLIENT_ZERO_BASICS_CRASH_POINTS_H_
#define GEMINID_CLIENT_ZERO_BASICS_CRASH_POINTS_H_

#include <atomic>

namespace geminid::zero {

inline constexpr const char* kCrashPoints[] = {
    "step agreed",      // all ranks have stored all gradients of the step, and this rank knows it
    "update prepared",  // the spare tensor state is written
    "step noted",       // the step note is written too
    "step recorded",    // the commit record is written
    "tensors flipped",  // the spare tensor state is the current one
    "slice updated",    // of streamed state, on the device; a part of it may be in the spare
    "extent leaving",   // of state on disk; any part of it may be in the spare, or none
    "granule written",  // to the spare extent
    "granule flipped",  // the spare is the granule's extent
    "state claimed",    // a replacement rank has the chunks of the process before it
    "spare brought",    // the device's spare is copied to a home on the host, not yet its own
    "step passed",      // on a rank that was behind: noted, not recorded
    "behind recorded",  // the same, recorded
    "granule resumed",  // the first granules of an interrupted update are flipped
    "resumed",          // all granules are flipped
};

// The points at which the state leaves the device for other jobs, and comes back.
inline constexpr const char* kYieldCrashPoints[] = {
    "refuges made",      // host memory for chunks without a home, which may be on one rank alone
    "chunk leaving",     // its copy on the host is written; those of others are not, or in part
    "refuges whole",     // all copies are written and noted, and nothing has left the device
    "chunk dropped",     // it is no longer on the device, unlike others
    "arena given back",  // nothing is on the device
    "arena taken",       // the device memory is there again, without contents
    "chunk returning",   // it is on the device, and others are not
    "refuges spent",     // all of it is on the device; the copies are no longer noted
    "state returned",    // the copies are freed
};

// Those of a replacement that finds the state on the host.
inline constexpr const char* kReturnCrashPoints[] = {
    "state claimed",       // see above
    "chunk brought back",  // the first chunk whose only place is the device
    "spare brought",       // see above
    "refuges spent",       // the state is in its place; the copies are no longer noted
    "resumed",             // see above
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
