#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_OCCUPANCY_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_OCCUPANCY_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/hierarchy/hierarchy.h"

// The bytes on the device and on the host at each moment, for given decisions.

namespace geminid::planner {

// The start of each moment without waits, by the trace's own times. Entry N is the end.
// Recomputation does not count, so that no decision changes the window of another.
std::vector<double> MomentStarts(const Trace& trace);

// An offloaded activation lies on the device from `produced` to gone - 1 and from `back` to
// `consumed`.
struct OffloadWindow {
  std::int64_t gone = 0;
  std::int64_t back = 0;
  // How many seconds too late the link returns the activation, however early the transfer starts.
  double late_seconds = 0;
};

// The window of an activation that has the links to itself. It is never longer than the window that
// OffloadWindows gives.
OffloadWindow SoloWindow(const HierarchyProblem& problem, const std::vector<double>& starts,
                         const ActivationItem& item);

// The windows of the activations that `decisions` offload (zeros for the others). The link serves
// them one after another: down in the order in which they are produced, up by latest start before
// they are consumed. O(A log A + N) for A activations.
std::vector<OffloadWindow> OffloadWindows(const HierarchyProblem& problem,
                                          const std::vector<double>& starts,
                                          const Decisions& decisions);

// Bytes from moment first to last, inclusive; none if last < first.
struct Span {
  std::int64_t first = 0;
  std::int64_t last = -1;
  std::uint64_t bytes = 0;
};

// The device memory of one activation: at most two spans.
struct ActivationSpans {
  Span spans[2];
};
ActivationSpans SpansOf(const ActivationItem& item, ActivationPlace place,
                        const OffloadWindow& window);

struct Occupancy {
  std::vector<std::uint64_t> device_activations;  // per moment
  std::vector<std::uint64_t> host_activations;
  // These are the same at all moments.
  std::uint64_t device_state = 0;      // weights' home, remainder, moments
  std::uint64_t device_gradients = 0;  // of chunks updated on the device
  std::uint64_t device_staging = 0;    // of streamed state, spares
  double late_seconds = 0;             // the worst of all windows

  std::uint64_t device_constant() const { return device_state + device_gradients + device_staging; }
};
Occupancy ComputeOccupancy(const HierarchyProblem& problem, const Decisions& decisions);

// Bytes of the chunks that each moment uses, rounded up to their extents.
std::vector<std::uint64_t> UsedBytes(const HierarchyProblem& problem);

// Per moment, the least bytes of activations that any decisions allow.
std::vector<std::uint64_t> LeastActivationBytes(const HierarchyProblem& problem);

// The bytes that gpu_margin_mem_ratio allows for state on the device; no limit if it is absent.
std::uint64_t DeviceStateLimit(const HierarchyProblem& problem);

// Bytes of state and gradient of a chunk that is updated on the device.
inline std::uint64_t DeviceStateBytes(const OptimizerItem& item) {
  return item.state_bytes() + item.gradient_bytes;
}

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_OCCUPANCY_H_
