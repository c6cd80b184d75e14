// Shared resources: links, root complexes, memory, disks.
#ifndef GEMINID_TOOLS_SIM_RESOURCES_H_
#define GEMINID_TOOLS_SIM_RESOURCES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tools/sim/event_queue.h"

namespace geminid::sim {

enum class ResourceId : uint32_t {};
enum class FlowId : uint64_t {};

// The units of a resource that a flow takes per second at full speed.
struct ResourceDemand {
  ResourceId resource{};
  double units_per_second = 0;
};

// Resources, and the flows that share them and run as fast as they allow.
//
// A flow is work that takes `seconds` if it runs alone. At speed s, 0 < s <= 1, it takes s times
// its demands. A resource that cannot serve all flows is divided into equal parts. A flow that
// needs less than its part leaves the rest to the others (max-min fairness, roughly what PCIe
// switches and memory controllers do). A flow runs at the speed of its scarcest resource. Speeds
// change only when a flow starts or ends, so times are exact. Not thread-safe.
//
// Cost of a start or an end: linear in the flows while no resource is short, else quadratic.
class Resources {
 public:
  explicit Resources(EventQueue* events) : events_(events) {}
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  ResourceId Add(double units_per_second);

  // `done` is called when the work is done; soon for flows without work. At most one demand per
  // resource.
  FlowId Start(double seconds, std::vector<ResourceDemand> demands, std::function<void()> done);
  // Ends the flow, if it still runs, without calling `done`.
  void Cancel(FlowId flow);

 private:
  struct Flow {
    double seconds_left = 0;  // at full speed
    double speed = 0;
    std::vector<ResourceDemand> demands;
    std::function<void()> done;
  };

  void Advance();
  void SetSpeeds();
  void Share();
  double Level(size_t resource, double left, const std::vector<Flow*>& waiting) const;
  void Schedule();
  void EndFinished();

  EventQueue* const events_;
  std::vector<double> units_per_second_;  // of each resource
  std::map<FlowId, Flow> flows_;
  core::Time advanced_to_;
  uint64_t next_flow_ = 0;
  uint64_t generation_ = 0;  // of the speeds: older events are void
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_RESOURCES_H_
