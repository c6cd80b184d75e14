#include "tests/daemon/planner/tiers/problems.h"

#include <algorithm>
#include <random>

namespace geminid::planner {
namespace {

// std::uniform_*_distribution differs between libraries; a generator's bits do not.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : generator_(seed) {}
  std::uint64_t Whole(std::uint64_t least, std::uint64_t most) {
    return least + generator_() % (most - least + 1);
  }
  double Real(double least, double most) {
    return least + (most - least) * static_cast<double>(generator_() % 10007) / 10006;
  }
  bool OneIn(std::uint32_t n) { return generator_() % n == 0; }

 private:
  std::mt19937 generator_;
};

}  // namespace

Machine PlainMachine() {
  Machine machine;
  machine.up_bytes_per_second = 50e9;
  machine.down_bytes_per_second = 50e9;
  machine.latency_seconds = 1e-5;
  machine.host_memory_bytes_per_second = 400e9;
  machine.cpu_update_share = 0.8;
  machine.device_memory_bytes_per_second = 2e12;
  machine.host_bytes = 64 * kGiB;
  return machine;
}

TierProblem Chain(const ChainShape& shape, std::uint64_t arena_bytes) {
  TierProblem problem;
  problem.machine = PlainMachine();
  problem.trace.arena_bytes = arena_bytes;
  problem.planner_options.slack_seconds = 0;
  const std::uint64_t weight = 2 * shape.parameters;
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    problem.trace.chunks.push_back(
        {.id = i, .size_bytes = weight, .transfer_bytes = weight, .gradient_bytes = weight});
    problem.optimizer.push_back({.parameters = shape.parameters,
                                 .weight_bytes = weight,
                                 .remainder_bytes = weight,
                                 .moment_bytes = 4 * weight,
                                 .gradient_bytes = weight});
    const Moment backward = 2 * shape.layers - 1 - i;
    if (shape.activation_bytes > 0) {
      problem.activations.push_back({.id = i,
                                     .bytes = shape.activation_bytes,
                                     .produced = i,
                                     .consumed = backward,
                                     .recompute_seconds = shape.forward_seconds,
                                     .kept_bytes = shape.kept_bytes});
    }
  }
  for (Moment t = 0; t < 2 * shape.layers; ++t) {
    const bool forward = t < shape.layers;
    const ChunkIndex chunk = forward ? t : 2 * shape.layers - 1 - t;
    MomentTrace moment;
    moment.uses = {{chunk, !forward}};
    moment.workspace_bytes = shape.workspace_bytes;
    moment.compute_seconds = (forward ? 1 : 2) * shape.forward_seconds;
    problem.trace.moments.push_back(moment);
  }
  return problem;
}

TierProblem RandomProblem(std::uint32_t layers, std::uint32_t seed) {
  Draw draw(seed);
  ChainShape shape;
  shape.layers = layers;
  TierProblem problem = Chain(shape, 0);
  std::uint64_t largest = 0;
  std::uint64_t everything = 0;
  for (std::uint32_t i = 0; i < layers; ++i) {
    Chunk& chunk = problem.trace.chunks[i];
    OptimizerItem& item = problem.optimizer[i];
    item.parameters = draw.Whole(1, 16) << 17;
    item.weight_bytes = item.remainder_bytes = item.gradient_bytes = 2 * item.parameters;
    item.moment_bytes = 8 * item.parameters;
    chunk.size_bytes = item.weight_bytes;
    chunk.transfer_bytes = item.weight_bytes;
    chunk.gradient_bytes = item.gradient_bytes;
    if (draw.OneIn(6)) {
      chunk.frozen = true;
      chunk.gradient_bytes = 0;
      item = {.weight_bytes = chunk.size_bytes};
      problem.trace.moments[2 * layers - 1 - i].uses[0].invalidates = false;
    }
    ActivationItem& activation = problem.activations[i];
    activation.bytes = draw.Whole(1, 16) << 19;
    activation.kept_bytes = activation.bytes / draw.Whole(2, 16);
    activation.recompute_seconds = draw.Real(1e-5, 1e-3);
    activation.can_offload = !draw.OneIn(5);
    activation.can_recompute = !draw.OneIn(5);
    everything += chunk.size_bytes + (item.state_bytes() + item.gradient_bytes) + activation.bytes;
    largest = std::max(largest, chunk.size_bytes);
  }
  // Every second problem computes little, so that another resource is critical.
  const double slowest = seed % 2 == 0 ? 3e-3 : 3e-4;
  for (MomentTrace& moment : problem.trace.moments) {
    moment.compute_seconds = draw.Real(slowest / 10, slowest);
    moment.workspace_bytes = draw.Whole(0, 4) << 18;
  }
  problem.machine.up_bytes_per_second = draw.Real(2e9, 60e9);
  problem.machine.down_bytes_per_second = draw.Real(2e9, 60e9);
  problem.machine.host_memory_bytes_per_second = draw.Real(20e9, 400e9);
  std::uint64_t fixed = 2 * largest + kMiB;
  for (const ActivationItem& activation : problem.activations) {
    fixed += activation.can_recompute ? activation.kept_bytes
             : activation.can_offload ? 0
                                      : activation.bytes;
    fixed += activation.can_recompute ? 0 : activation.bytes / 2;
  }
  fixed += 8 * kMiB;
  problem.trace.arena_bytes = draw.Whole(fixed, fixed + everything);
  return problem;
}

}  // namespace geminid::planner
