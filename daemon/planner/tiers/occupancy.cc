#include "daemon/planner/tiers/occupancy.h"

#include <algorithm>

#include "base/pages.h"
#include "daemon/planner/tiers/update.h"

namespace geminid::planner {
namespace {

double CopySeconds(const Machine& machine, std::uint64_t bytes, double bytes_per_second) {
  return machine.latency_seconds + static_cast<double>(bytes) / bytes_per_second;
}

// The start of each moment without waits, by the trace's own times. Entry N is the end.
std::vector<double> MomentStarts(const Trace& trace) {
  std::vector<double> starts = {0};
  starts.reserve(trace.moments.size() + 1);
  for (const MomentTrace& moment : trace.moments) {
    starts.push_back(starts.back() + moment.compute_seconds);
  }
  return starts;
}

// Adds bytes from moment first to last, inclusive, to the differences between moments.
void Add(std::vector<std::uint64_t>& differences, std::size_t first, std::size_t last,
         std::uint64_t bytes) {
  differences[first] += bytes;
  // The difference wraps below zero in between; the running sum is exact again.
  differences[last + 1] -= bytes;
}

// Per moment, the bytes of activations on the device.
std::vector<std::uint64_t> DeviceActivations(const TierProblem& problem,
                                             const Decisions& decisions) {
  std::vector<std::uint64_t> bytes(problem.trace.moments.size() + 1, 0);
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    switch (decisions.activations[i]) {
      case ActivationPlace::kKeep:
        Add(bytes, item.produced, item.consumed, item.bytes);
        break;
      case ActivationPlace::kRecompute:
        Add(bytes, item.produced, item.consumed - 1, item.kept_bytes);
        Add(bytes, item.consumed, item.consumed, item.bytes);
        break;
      case ActivationPlace::kOffload:
        break;
    }
  }
  bytes[0] += decisions.activation_places * ActivationPlaceBytes(problem, decisions);
  for (std::size_t t = 1; t < bytes.size(); ++t) bytes[t] += bytes[t - 1];
  bytes.pop_back();
  return bytes;
}

}  // namespace

std::vector<std::size_t> OffloadedOrder(const TierProblem& problem, const Decisions& decisions) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    if (decisions.activations[i] == ActivationPlace::kOffload) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return problem.activations[a].produced < problem.activations[b].produced;
  });
  return order;
}

std::uint64_t ActivationPlaceBytes(const TierProblem& problem, const Decisions& decisions) {
  std::uint64_t most = 0;
  for (const std::size_t i : OffloadedOrder(problem, decisions)) {
    most = std::max(most, problem.activations[i].bytes);
  }
  return base::RoundUp(most, problem.planner_options.alignment_bytes);
}

double OffloadWaitSeconds(const TierProblem& problem, const Decisions& decisions) {
  const std::vector<std::size_t> order = OffloadedOrder(problem, decisions);
  const std::size_t places = decisions.activation_places;
  if (order.size() <= places) return 0;
  const std::vector<double> starts = MomentStarts(problem.trace);
  const Machine& machine = problem.machine;
  const std::size_t leaving = order.size() - places;
  const auto item = [&](std::size_t k) -> const ActivationItem& {
    return problem.activations[order[k]];
  };
  double waited = 0;
  double link_free = 0;
  std::vector<double> down(order.size(), 0);  // when each is in host memory
  for (std::size_t k = 0; k < order.size(); ++k) {
    const double start = starts[item(k).produced] + waited;
    if (k >= places) waited += std::max(0.0, down[k - places] - start);
    if (k >= leaving) continue;
    link_free = std::max(link_free, starts[item(k).produced + 1] + waited) +
                CopySeconds(machine, item(k).bytes, DownRate(machine));
    down[k] = link_free;
  }
  link_free = 0;
  std::vector<double> consumed(order.size(), 0);
  for (std::size_t k = order.size(); k-- > 0;) {
    if (k < leaving) {
      link_free = std::max({link_free, consumed[k + places], down[k]}) +
                  CopySeconds(machine, item(k).bytes, UpRate(machine));
      waited += std::max(0.0, link_free - (starts[item(k).consumed] + waited));
    }
    consumed[k] = starts[item(k).consumed + 1] + waited;
  }
  return waited;
}

Occupancy ComputeOccupancy(const TierProblem& problem, const Decisions& decisions) {
  Occupancy occupancy;
  occupancy.device_activations = DeviceActivations(problem, decisions);
  const std::vector<std::size_t> order = OffloadedOrder(problem, decisions);
  for (std::size_t k = 0; k + decisions.activation_places < order.size(); ++k) {
    occupancy.host_activations += problem.activations[order[k]].bytes;
  }
  std::uint64_t largest_streamed = 0;
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    const OptimizerItem& item = problem.optimizer[c];
    if (decisions.optimizer[c] == OptimizerPlace::kDevice) {
      occupancy.device_state += item.state_bytes();
      occupancy.device_gradients += item.gradient_bytes;
    } else if (decisions.optimizer[c] == OptimizerPlace::kStreamed) {
      occupancy.device_gradients += item.gradient_bytes;
      largest_streamed = std::max(largest_streamed, item.state_bytes());
    }
  }
  occupancy.device_staging = kStreamBuffers * largest_streamed;
  if (occupancy.device_gradients > 0) occupancy.device_staging += problem.device_spare_bytes;
  return occupancy;
}

std::vector<std::uint64_t> UsedBytes(const TierProblem& problem) {
  const std::uint64_t alignment = problem.planner_options.alignment_bytes;
  std::vector<std::uint64_t> used;
  used.reserve(problem.trace.moments.size());
  for (const MomentTrace& moment : problem.trace.moments) {
    std::uint64_t bytes = 0;
    for (const Use& use : moment.uses) {
      bytes += base::RoundUp(problem.trace.chunks[use.chunk].size_bytes, alignment);
    }
    used.push_back(bytes);
  }
  return used;
}

std::uint64_t DeviceStateLimit(const TierProblem& problem, const Decisions& decisions,
                               double share) {
  const std::vector<std::uint64_t> used = UsedBytes(problem);
  const std::vector<std::uint64_t> activations = DeviceActivations(problem, decisions);
  std::uint64_t fullest = 0;
  for (std::size_t t = 0; t < used.size(); ++t) {
    fullest =
        std::max(fullest, used[t] + activations[t] + problem.trace.moments[t].workspace_bytes);
  }
  if (fullest >= problem.trace.arena_bytes) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(problem.trace.arena_bytes - fullest) *
                                    share);
}

}  // namespace geminid::planner
