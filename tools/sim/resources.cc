#include "tools/sim/resources.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace geminid::sim {
namespace {

// Half of the clock's nanosecond: smaller rests are rounding.
constexpr double kDoneSeconds = 0.5e-9;
// A resource with no more demand than this factor times its supply is not short.
constexpr double kRounding = 1 + 1e-12;

}  // namespace

ResourceId Resources::Add(double units_per_second) {
  units_per_second_.push_back(units_per_second);
  return static_cast<ResourceId>(units_per_second_.size() - 1);
}

FlowId Resources::Start(double seconds, std::vector<ResourceDemand> demands,
                        std::function<void()> done) {
  const FlowId id{next_flow_++};
  Advance();
  flows_[id] = {.seconds_left = std::max(0.0, seconds),
                .demands = std::move(demands),
                .done = std::move(done)};
  SetSpeeds();
  Schedule();
  return id;
}

void Resources::Cancel(FlowId flow) {
  Advance();
  if (flows_.erase(flow) == 0) return;
  SetSpeeds();
  Schedule();
}

void Resources::Advance() {
  const double since = (events_->now() - advanced_to_).seconds();
  advanced_to_ = events_->now();
  if (since == 0) return;
  for (auto& [id, flow] : flows_) flow.seconds_left -= since * flow.speed;
}

void Resources::SetSpeeds() {
  std::vector<double> asked(units_per_second_.size(), 0);
  for (auto& [id, flow] : flows_) {
    flow.speed = 1;
    for (const ResourceDemand& demand : flow.demands) {
      asked[static_cast<size_t>(demand.resource)] += demand.units_per_second;
    }
  }
  for (size_t r = 0; r < units_per_second_.size(); ++r) {
    if (asked[r] > units_per_second_[r] * kRounding) return Share();
  }
}

// The equal part of a resource for flows that want more, if the `waiting` flows share `left`.
double Resources::Level(size_t resource, double left, const std::vector<Flow*>& waiting) const {
  std::vector<double> wanted;
  for (const Flow* flow : waiting) {
    for (const ResourceDemand& demand : flow->demands) {
      if (static_cast<size_t>(demand.resource) == resource) {
        wanted.push_back(demand.units_per_second);
      }
    }
  }
  std::sort(wanted.begin(), wanted.end());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double part = left / static_cast<double>(wanted.size() - i);
    if (wanted[i] > part) return part;
    left -= wanted[i];
  }
  return std::numeric_limits<double>::infinity();
}

// Settles the slowest flow first, and divides what it leaves among the others.
void Resources::Share() {
  std::vector<Flow*> waiting;
  for (auto& [id, flow] : flows_) waiting.push_back(&flow);
  std::vector<double> left = units_per_second_;
  while (!waiting.empty()) {
    std::vector<double> levels(units_per_second_.size());
    for (size_t r = 0; r < units_per_second_.size(); ++r) levels[r] = Level(r, left[r], waiting);
    double slowest = std::numeric_limits<double>::infinity();
    size_t chosen = 0;
    for (size_t i = 0; i < waiting.size(); ++i) {
      double speed = 1;
      for (const ResourceDemand& demand : waiting[i]->demands) {
        const double level = levels[static_cast<size_t>(demand.resource)];
        if (demand.units_per_second > level) {
          speed = std::min(speed, level / demand.units_per_second);
        }
      }
      if (speed < slowest) {
        slowest = speed;
        chosen = i;
      }
    }
    Flow* flow = waiting[chosen];
    flow->speed = slowest;
    for (const ResourceDemand& demand : flow->demands) {
      double& rest = left[static_cast<size_t>(demand.resource)];
      rest = std::max(0.0, rest - slowest * demand.units_per_second);
    }
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
}

void Resources::Schedule() {
  const uint64_t generation = ++generation_;
  double soonest = std::numeric_limits<double>::infinity();
  for (const auto& [id, flow] : flows_) {
    if (flow.speed > 0) soonest = std::min(soonest, flow.seconds_left / flow.speed);
  }
  if (soonest == std::numeric_limits<double>::infinity()) return;
  events_->After(FromSeconds(soonest), [this, generation] {
    if (generation == generation_) EndFinished();
  });
}

void Resources::EndFinished() {
  Advance();
  std::vector<std::function<void()>> done;
  for (auto flow = flows_.begin(); flow != flows_.end();) {
    if (flow->second.seconds_left <= kDoneSeconds) {
      done.push_back(std::move(flow->second.done));
      flow = flows_.erase(flow);
    } else {
      ++flow;
    }
  }
  SetSpeeds();
  Schedule();
  for (const std::function<void()>& call : done) call();
}

}  // namespace geminid::sim
