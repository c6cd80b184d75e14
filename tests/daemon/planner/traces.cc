#include "tests/daemon/planner/traces.h"

#include <algorithm>
#include <cstddef>

namespace geminid::planner {

Trace ChainTrace(int length, std::uint64_t size_bytes, int bottom, int top, bool trained) {
  Trace trace;
  trace.arena_bytes = size_bytes * static_cast<std::uint64_t>(std::max(bottom, top));
  trace.link = {.h2d_bytes_per_second = 1e9, .d2h_bytes_per_second = 1e9, .latency_seconds = 0};
  for (int i = 0; i < length; ++i) {
    trace.chunks.push_back({.id = static_cast<std::uint64_t>(i),
                            .size_bytes = size_bytes,
                            .transfer_bytes = size_bytes,
                            .gradient_bytes = trained ? size_bytes : 0});
  }
  for (int t = 0; t < 2 * length; ++t) {
    const bool forward = t < length;
    const int chunk = forward ? t : 2 * length - 1 - t;
    // Rounded so that the first and the last chunk see exactly bottom and top.
    const double share = length > 1 ? static_cast<double>(chunk) / (length - 1) : 0;
    const auto capacity = static_cast<std::uint64_t>(bottom + (top - bottom) * share + 0.5);
    trace.moments.push_back(
        {.uses = {{.chunk = static_cast<ChunkIndex>(chunk), .invalidates = trained && !forward}},
         .workspace_bytes = trace.arena_bytes - size_bytes * capacity,
         .compute_seconds = 1e-3});
  }
  return trace;
}

std::uint64_t Draw(std::mt19937_64& random, std::uint64_t low, std::uint64_t high) {
  return low + random() % (high - low + 1);
}

Trace RandomTrace(const RandomShape& shape, std::mt19937_64& random) {
  Trace trace;
  trace.link = {.h2d_bytes_per_second = 1e3, .d2h_bytes_per_second = 1e3, .latency_seconds = 1e-4};
  for (int i = 0; i < shape.num_chunks; ++i) {
    const std::uint64_t size = Draw(random, shape.min_size_bytes, shape.max_size_bytes);
    trace.chunks.push_back(
        {.id = random(),
         .size_bytes = size,
         .transfer_bytes = shape.vary_transfer ? Draw(random, 0, 2 * size) : size,
         .gradient_bytes = size,
         .frozen = shape.freeze && Draw(random, 0, 1) == 0});
  }
  std::uint64_t total = 0;
  for (const Chunk& chunk : trace.chunks) total += chunk.size_bytes;
  std::uint64_t needed = 0;
  std::vector<std::uint64_t> extra;
  std::vector<std::uint64_t> used;
  for (int t = 0; t < shape.num_moments; ++t) {
    MomentTrace moment;
    moment.compute_seconds = static_cast<double>(Draw(random, 0, 10)) * 1e-3;
    const auto uses = Draw(random, 0, static_cast<std::uint64_t>(shape.max_uses_per_moment));
    std::vector<ChunkIndex> order(trace.chunks.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<ChunkIndex>(i);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(uses, order.size()); ++i) {
      std::swap(order[i], order[Draw(random, i, order.size() - 1)]);
      moment.uses.push_back(
          {.chunk = order[i], .invalidates = shape.invalidate && Draw(random, 0, 4) == 0});
      bytes += trace.chunks[order[i]].size_bytes;
    }
    needed = std::max(needed, bytes);
    used.push_back(bytes);
    trace.moments.push_back(moment);
  }
  const std::uint64_t most_extra = total - std::min(total, needed);
  for (int t = 0; t < shape.num_moments; ++t) extra.push_back(Draw(random, 0, most_extra));
  if (shape.capacity == Capacity::kConstant) std::fill(extra.begin(), extra.end(), extra[0]);
  if (shape.capacity == Capacity::kValley) {
    const auto tightest =
        static_cast<std::ptrdiff_t>(Draw(random, 0, static_cast<std::uint64_t>(shape.num_moments)));
    std::sort(extra.begin(), extra.begin() + tightest, std::greater<>());
    std::sort(extra.begin() + tightest, extra.end());
  }
  trace.arena_bytes = total + needed;
  for (std::size_t t = 0; t < extra.size(); ++t) {
    // Jagged: the capacity falls to the bytes that the moment uses.
    const std::uint64_t base = shape.capacity == Capacity::kJagged ? used[t] : needed;
    trace.moments[t].workspace_bytes = trace.arena_bytes - base - extra[t];
  }
  return trace;
}

PlannerOptions TestOptions() {
  PlannerOptions options;
  options.alignment_bytes = 1;
  options.drain_moments = 0;
  options.slack_seconds = 0;
  return options;
}

}  // namespace geminid::planner
