// What is shared: links, root complexes, memory, disks.
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

// What a flow takes of a resource each second while it goes at full speed.
struct Demand {
  ResourceId resource{};
  double units_per_second = 0;
};

// Flows that go as fast as what they share lets them.
//
// A flow is work that takes `seconds` alone. At speed s, 0 < s <= 1, it takes s times its demands.
// A resource that cannot serve all is divided into equal parts, and who needs less than its part
// leaves the rest to the others (max-min fairness: what a PCIe switch and
// a memory controller all do, more or less). A flow goes at the speed of its scarcest resource.
// Speeds change only when a flow starts or ends, so times are exact. Not thread-safe.
//
// Cost of a start or an end: linear in the flows while nothing is short, else quadratic.
class Resources {
 public:
  explicit Resources(EventQueue* events) : events_(events) {}
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  ResourceId Add(double units_per_second);

  // `done` is called when the work is done; flows without work are done soon. Demands at most once
  // per resource.
  FlowId Start(double seconds, std::vector<Demand> demands, std::function<void()> done);
  // The flow, if it is still there, ends without a call.
  void Cancel(FlowId flow);

 private:
  struct Flow {
    double seconds_left = 0;  // at full speed
    double speed = 0;
    std::vector<Demand> demands;
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
  uint64_t generation_ = 0;  // of the speeds: older appointments are void
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_RESOURCES_H_
