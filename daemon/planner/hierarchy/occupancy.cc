#include "daemon/planner/hierarchy/occupancy.h"

#include <algorithm>
#include <limits>

#include "base/pages.h"
#include "daemon/planner/hierarchy/update.h"

namespace geminid::planner {
namespace {

double DownSeconds(const Machine& machine, std::uint64_t bytes) {
  return machine.latency_seconds + static_cast<double>(bytes) / DownRate(machine);
}

double UpSeconds(const Machine& machine, std::uint64_t bytes) {
  return machine.latency_seconds + static_cast<double>(bytes) / UpRate(machine);
}

// The first moment that starts at `seconds` or later, at least `least`.
std::int64_t FirstFrom(const std::vector<double>& starts, double seconds, std::int64_t least) {
  const auto at = std::lower_bound(starts.begin(), starts.end(), seconds) - starts.begin();
  return std::max<std::int64_t>(at, least);
}

// The last moment that starts by `seconds`, at most `most`.
std::int64_t LastBy(const std::vector<double>& starts, double seconds, std::int64_t most) {
  const auto after = std::upper_bound(starts.begin(), starts.end(), seconds) - starts.begin();
  return std::min(std::max<std::int64_t>(0, after - 1), most);
}

OffloadWindow WindowOf(const HierarchyProblem& problem, const std::vector<double>& starts,
                       const ActivationItem& item, double down_done, double up_start) {
  OffloadWindow window;
  const std::int64_t drained =
      std::int64_t{item.produced} + 1 + problem.options.planner.drain_moments;
  window.gone = FirstFrom(starts, down_done, drained);
  window.back = LastBy(starts, up_start, item.consumed);
  window.late_seconds = std::max(0.0, down_done - up_start);
  return window;
}

void Add(std::vector<std::uint64_t>& differences, const Span& span) {
  if (span.last < span.first) return;
  differences[static_cast<std::size_t>(span.first)] += span.bytes;
  // The difference wraps below zero in between; the running sum is exact again.
  differences[static_cast<std::size_t>(span.last) + 1] -= span.bytes;
}

void Accumulate(std::vector<std::uint64_t>& differences) {
  for (std::size_t t = 1; t < differences.size(); ++t) differences[t] += differences[t - 1];
  differences.pop_back();
}

}  // namespace

std::vector<double> MomentStarts(const Trace& trace) {
  std::vector<double> starts = {0};
  starts.reserve(trace.moments.size() + 1);
  for (const MomentTrace& moment : trace.moments) {
    starts.push_back(starts.back() + moment.compute_seconds);
  }
  return starts;
}

OffloadWindow SoloWindow(const HierarchyProblem& problem, const std::vector<double>& starts,
                         const ActivationItem& item) {
  return WindowOf(problem, starts, item,
                  starts[item.produced + 1] + DownSeconds(problem.machine, item.bytes),
                  starts[item.consumed] - UpSeconds(problem.machine, item.bytes));
}

std::vector<OffloadWindow> OffloadWindows(const HierarchyProblem& problem,
                                          const std::vector<double>& starts,
                                          const Decisions& decisions) {
  const std::vector<ActivationItem>& items = problem.activations;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (decisions.activations[i] == ActivationPlace::kOffload) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return items[a].produced < items[b].produced;
  });
  std::vector<double> down_done(items.size(), 0);
  double free_at = 0;
  for (const std::size_t i : order) {
    free_at = std::max(free_at, starts[items[i].produced + 1]) +
              DownSeconds(problem.machine, items[i].bytes);
    down_done[i] = free_at;
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return items[a].consumed > items[b].consumed;
  });
  std::vector<OffloadWindow> windows(items.size());
  double taken_from = std::numeric_limits<double>::infinity();
  for (const std::size_t i : order) {
    taken_from = std::min(taken_from, starts[items[i].consumed]) -
                 UpSeconds(problem.machine, items[i].bytes);
    windows[i] = WindowOf(problem, starts, items[i], down_done[i], taken_from);
  }
  return windows;
}

ActivationSpans SpansOf(const ActivationItem& item, ActivationPlace place,
                        const OffloadWindow& window) {
  const std::int64_t produced = item.produced;
  const std::int64_t consumed = item.consumed;
  switch (place) {
    case ActivationPlace::kKeep:
      break;
    case ActivationPlace::kOffload:
      if (window.gone >= window.back) break;
      return {{{produced, window.gone - 1, item.bytes}, {window.back, consumed, item.bytes}}};
    case ActivationPlace::kRecompute:
      return {{{produced, consumed - 1, item.kept_bytes}, {consumed, consumed, item.bytes}}};
  }
  return {{{produced, consumed, item.bytes}, {}}};
}

Occupancy ComputeOccupancy(const HierarchyProblem& problem, const Decisions& decisions) {
  Occupancy occupancy;
  const std::vector<double> starts = MomentStarts(problem.trace);
  const std::vector<OffloadWindow> windows = OffloadWindows(problem, starts, decisions);
  const std::size_t moments = problem.trace.moments.size();
  occupancy.device_activations.assign(moments + 1, 0);
  occupancy.host_activations.assign(moments + 1, 0);
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    const ActivationPlace place = decisions.activations[i];
    const ActivationSpans spans = SpansOf(item, place, windows[i]);
    for (const Span& span : spans.spans) Add(occupancy.device_activations, span);
    if (place != ActivationPlace::kOffload) continue;
    Add(occupancy.host_activations, {item.produced, item.consumed, item.bytes});
    occupancy.late_seconds = std::max(occupancy.late_seconds, windows[i].late_seconds);
  }
  Accumulate(occupancy.device_activations);
  Accumulate(occupancy.host_activations);
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
  if (occupancy.device_gradients > 0) {
    occupancy.device_staging += problem.options.device_spare_bytes;
  }
  return occupancy;
}

std::vector<std::uint64_t> UsedBytes(const HierarchyProblem& problem) {
  const std::uint64_t alignment = problem.options.planner.alignment_bytes;
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

std::vector<std::uint64_t> LeastActivationBytes(const HierarchyProblem& problem) {
  std::vector<std::uint64_t> least(problem.trace.moments.size() + 1, 0);
  const std::vector<double> starts = MomentStarts(problem.trace);
  for (const ActivationItem& item : problem.activations) {
    const OffloadWindow window = SoloWindow(problem, starts, item);
    const bool leaves = item.can_offload && window.gone < window.back;
    const bool shrinks = item.can_recompute;
    const std::uint64_t middle = leaves ? 0 : shrinks ? item.kept_bytes : item.bytes;
    const std::uint64_t edge = shrinks ? item.kept_bytes : item.bytes;
    const std::int64_t gone = leaves ? window.gone : item.consumed;
    const std::int64_t back = leaves ? window.back : item.consumed;
    Add(least, {item.produced, gone - 1, edge});
    Add(least, {gone, back - 1, middle});
    Add(least, {back, std::int64_t{item.consumed} - 1, edge});
    Add(least, {item.consumed, item.consumed, item.bytes});
  }
  Accumulate(least);
  return least;
}

std::uint64_t DeviceStateLimit(const HierarchyProblem& problem) {
  if (!problem.options.gpu_margin_mem_ratio.has_value()) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  const std::vector<std::uint64_t> used = UsedBytes(problem);
  const std::vector<std::uint64_t> least = LeastActivationBytes(problem);
  std::uint64_t fullest = 0;
  for (std::size_t t = 0; t < used.size(); ++t) {
    fullest = std::max(fullest, used[t] + least[t] + problem.trace.moments[t].workspace_bytes);
  }
  if (fullest >= problem.trace.arena_bytes) return 0;
  const auto margin = static_cast<double>(problem.trace.arena_bytes - fullest);
  return static_cast<std::uint64_t>(margin * *problem.options.gpu_margin_mem_ratio);
}

}  // namespace geminid::planner
