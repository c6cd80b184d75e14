// One simulated rank's process: what its parts have in common, and what ends with it.
#ifndef GEMINID_TOOLS_SIM_PROCESS_H_
#define GEMINID_TOOLS_SIM_PROCESS_H_

#include <array>
#include <cstddef>
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
#include "tools/sim/processors.h"
#include "tools/sim/resources.h"

namespace geminid::sim {

// The shared things of a node that one rank uses. Those a machine does not have are never short.
struct RankResources {
  std::vector<Demand> up;  // per byte and second of a copy, by direction
  std::vector<Demand> down;
  std::vector<Demand> host;  // per byte read or written in host memory
  std::vector<Demand> disk_read;
  std::vector<Demand> disk_write;
};

// The threads of a process that take processors.
enum class Role : uint8_t { kTrainer, kMover, kUpdater, kUp, kDown, kPort };
inline constexpr size_t kRoles = 6;

// Where the process runs. All outlive it.
struct ProcessContext {
  EventQueue* events = nullptr;
  Resources* resources = nullptr;
  Processors* processors = nullptr;  // null: there is always one to be had
  std::array<ThreadId, kRoles> threads{};
  Observer* observer = nullptr;
  const Machine* machine = nullptr;
  const Workload* workload = nullptr;
  RankResources shared;
  int rank = 0;
  uint64_t seed = 0;
  std::function<void(const absl::Status&)> fail;  // ends the simulation
};

// When it goes, its flows end and nothing it asked to be called is called any more: kill -9.
class Process {
 public:
  explicit Process(ProcessContext context) : context_(std::move(context)) {}
  ~Process() {
    for (const FlowId flow : flows_) context_.resources->Cancel(flow);
    for (const auto& [thread, work] : runs_) context_.processors->Cancel(thread, work);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Calls `action` only if this process lives then.
  std::function<void()> Guard(std::function<void()> action) const {
    return [alive = std::weak_ptr<const bool>(alive_), action = std::move(action)] {
      if (!alive.expired()) action();
    };
  }
  void After(double seconds, std::function<void()> action) {
    context_.events->After(FromSeconds(seconds), Guard(std::move(action)));
  }

  // Work of `seconds` at full speed, seen on a track. `done` is called when it is done.
  void Work(Track track, std::string name, double seconds, std::vector<Demand> demands,
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

  // The same on a thread: takes a processor for `seconds`, and as long what it demands besides.
  void Compute(Role role, Track track, std::string name, double seconds,
               std::vector<Demand> demands, std::function<void()> done) {
    if (context_.processors == nullptr) {
      return Work(track, std::move(name), seconds, std::move(demands), std::move(done));
    }
    const auto end = std::make_shared<std::function<void()>>(std::move(done));
    const auto parts = std::make_shared<int>(demands.empty() ? 1 : 2);
    const auto join = [end, parts] {
      if (--*parts == 0) (*end)();
    };
    const core::Time begin = context_.events->now();
    if (!demands.empty()) Work(track, name, seconds, std::move(demands), join);
    Occupy(role, seconds, [this, track, name = std::move(name), begin, join, alone = *parts == 1] {
      if (alone) context_.observer->Add({rank(), track, name, begin, context_.events->now()});
      join();
    });
  }
  // A thread takes a processor for `seconds`: at once without processors, or for no time.
  void Occupy(Role role, double seconds, std::function<void()> done) {
    if (context_.processors == nullptr) return done();
    const ThreadId thread = context_.threads[static_cast<size_t>(role)];
    const auto work = std::make_shared<WorkId>();
    *work = context_.processors->Run(thread, seconds,
                                     Guard([this, thread, work, done = std::move(done)] {
                                       runs_.erase({thread, *work});
                                       done();
                                     }));
    runs_.insert({thread, *work});
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
  std::set<std::pair<ThreadId, WorkId>> runs_;
};

// `demands` times `rate`, added to `sum`.
inline void AddDemands(const std::vector<Demand>& demands, double rate, std::vector<Demand>* sum) {
  for (const Demand& demand : demands) {
    sum->push_back({demand.resource, demand.units_per_second * rate});
  }
}

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_PROCESS_H_
