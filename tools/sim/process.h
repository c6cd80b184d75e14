// One simulated rank's process: the context that its parts share, and that ends with it.
#ifndef GEMINID_TOOLS_SIM_PROCESS_H_
#define GEMINID_TOOLS_SIM_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/sim/event_queue.h"
#include "tools/sim/machine.h"
#include "tools/sim/observer.h"
#include "tools/sim/resources.h"

namespace geminid::sim {

// The shared resources of a node that one rank uses. Those a machine does not have are unlimited.
struct RankResources {
  std::vector<ResourceDemand> up;  // per byte and second of a copy, by direction
  std::vector<ResourceDemand> down;
  std::vector<ResourceDemand> host;  // per byte read or written in host memory
  std::vector<ResourceDemand> disk_read;
  std::vector<ResourceDemand> disk_write;
};

// The surroundings of the process. All outlive it.
struct ProcessContext {
  EventQueue* events = nullptr;
  Resources* resources = nullptr;
  Observer* observer = nullptr;
  const Machine* machine = nullptr;
  const Workload* workload = nullptr;
  RankResources shared;
  int rank = 0;
  uint64_t seed = 0;
  std::function<void(const absl::Status&)> fail;  // ends the simulation
};

// When it is destroyed, its flows end and none of its callbacks is called any more, as by kill -9.
class Process {
 public:
  explicit Process(ProcessContext context) : context_(std::move(context)) {}
  ~Process() {
    for (const FlowId flow : flows_) context_.resources->Cancel(flow);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Wraps `action` so that it runs only if this process lives then.
  std::function<void()> Guard(std::function<void()> action) const {
    return [alive = std::weak_ptr<const bool>(alive_), action = std::move(action)] {
      if (!alive.expired()) action();
    };
  }
  void After(double seconds, std::function<void()> action) {
    context_.events->After(FromSeconds(seconds), Guard(std::move(action)));
  }

  // Work of `seconds` at full speed, recorded on a track. Calls `done` when it is done.
  void Work(Track track, std::string name, double seconds, std::vector<ResourceDemand> demands,
            std::function<void()> done) {
    const core::Time begin = context_.events->now();
    const auto flow = std::make_shared<FlowId>();
    *flow = context_.resources->Start(
        seconds, std::move(demands),
        Guard([this, flow, track, name = std::move(name), begin, done = std::move(done)] {
          flows_.erase(*flow);
          context_.observer->Add({rank(), track, name, begin, context_.events->now()});
          done();
        }));
    flows_.insert(*flow);
  }

  int rank() const { return context_.rank; }
  uint64_t seed() const { return context_.seed; }
  core::Time now() const { return context_.events->now(); }
  Observer& observer() const { return *context_.observer; }
  const Machine& machine() const { return *context_.machine; }
  const Workload& workload() const { return *context_.workload; }
  const RankResources& shared() const { return context_.shared; }
  void Fail(const absl::Status& status) const { context_.fail(status); }

 private:
  const ProcessContext context_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  std::set<FlowId> flows_;
};

// `demands` times `rate`, added to `sum`.
inline void AddDemands(const std::vector<ResourceDemand>& demands, double rate,
                       std::vector<ResourceDemand>* sum) {
  for (const ResourceDemand& demand : demands) {
    sum->push_back({demand.resource, demand.units_per_second * rate});
  }
}

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_PROCESS_H_
