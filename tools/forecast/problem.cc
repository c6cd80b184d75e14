#include "tools/forecast/problem.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/zero/layout.h"
#include "client/zero/recorder.h"
#include "geminid/types.h"

namespace geminid::forecast {
namespace {

// Starting a copy and learning that it is done: driver call, DMA set-up and event, of the order of
// 10 us on every machine we know.
constexpr double kCopyLatencySeconds = 10e-6;
// A reduced chunk leaves during the operator after the one that completed its gradient, as in the
// engine.
constexpr std::uint32_t kDrainMoments = 1;
constexpr std::uint64_t kRemainderBytes = 2;
constexpr std::uint32_t kRanksMax = 1 << 20;
constexpr std::uint64_t kTokensMax = std::uint64_t{1} << 32;

// Builds the problem of one rank, moment by moment.
class Builder {
 public:
  Builder(const Model& model, const Job& job) : model_(model), job_(job) {}

  absl::StatusOr<planner::HierarchyProblem> Make() {
    tensors_ = Tensors(model_);
    GEMINID_RETURN_IF_ERROR(LayOut());
    gradients_missing_.assign(layout_.chunks.size(), 0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      gradients_missing_[layout_.tensors[i].chunk] += tensors_[i].also_output ? 2 : 1;
    }
    Forward();
    Moment(Operator::kOutput, 0, Turn::kBackward);
    Backward();
    AddChunks();
    AddMoments();
    Finish();
    return std::move(problem_);
  }

 private:
  absl::Status LayOut() {
    std::vector<zero::TensorShape> shapes;
    for (const Tensor& tensor : tensors_) shapes.push_back({.elements = tensor.elements});
    GEMINID_ASSIGN_OR_RETURN(layout_,
                             zero::MakeLayout(shapes, {.world_size = static_cast<int>(job_.ranks),
                                                       .element_bytes = kElementBytes,
                                                       .extent_bytes = kExtentAlignmentBytes}));
    // Tensors by operator: those of a layer are consecutive.
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      OfOperator(tensors_[i].used_by, tensors_[i].layer).push_back(i);
      if (tensors_[i].also_output) OfOperator(Operator::kOutput, 0).push_back(i);
    }
    return absl::OkStatus();
  }

  std::vector<std::uint32_t>& OfOperator(Operator op, std::uint64_t layer) {
    if (op == Operator::kEmbedding) return embedding_;
    if (op == Operator::kOutput) return output_;
    std::vector<std::vector<std::uint32_t>>& halves =
        op == Operator::kAttention ? attention_ : mlp_;
    halves.resize(model_.layers);
    return halves[layer];
  }

  void Forward() {
    Moment(Operator::kEmbedding, 0, Turn::kForward);
    for (std::uint64_t layer = 0; layer < model_.layers; ++layer) {
      Moment(Operator::kAttention, layer, Turn::kForward);
      Moment(Operator::kMlp, layer, Turn::kForward);
    }
  }

  void Backward() {
    for (std::uint64_t layer = model_.layers; layer-- > 0;) {
      Moment(Operator::kMlp, layer, Turn::kBackward);
      Moment(Operator::kAttention, layer, Turn::kBackward);
    }
    Moment(Operator::kEmbedding, 0, Turn::kBackward);
  }

  double Seconds(Operator op, Turn turn) const {
    const Hardware& device = job_.hardware;
    const double computing =
        Operations(model_, op, turn, job_.batch) / (device.flops * device.achieved_share);
    const double moving =
        DeviceTraffic(model_, op, turn, job_.batch) / device.device_memory_bytes_per_second;
    return std::max(computing, moving);
  }

  void Moment(Operator op, std::uint64_t layer, Turn turn) {
    const std::vector<std::uint32_t>& tensors = OfOperator(op, layer);
    std::vector<std::uint32_t> chunks;
    for (const std::uint32_t tensor : tensors) chunks.push_back(layout_.tensors[tensor].chunk);
    recorder_.BeginMoment(chunks);
    std::uint64_t workspace = WorkspaceBytes(model_, op, turn, job_.batch);
    double seconds = Seconds(op, turn);
    if (op == Operator::kAttention || op == Operator::kMlp) {
      if (job_.activations == Activations::kRecompute) {
        // The half computes all but its input in either turn.
        workspace += SavedBytes(model_, op, job_.batch).rest_bytes;
        if (turn == Turn::kBackward) seconds += Seconds(op, Turn::kForward);
      }
      Keep(op, layer, turn);
    }
    recorder_.NoteWorkspace(base::RoundUp(workspace, kExtentAlignmentBytes));
    recorder_.NoteCompute(seconds);
    if (turn == Turn::kBackward) {
      for (const std::uint32_t chunk : chunks) {
        recorder_.NoteGradient(chunk);
        if (--gradients_missing_[chunk] == 0) recorder_.NoteReduced(chunk);
      }
    }
    ++moments_;
  }

  // What forward of a half makes for its backward: its input, which nothing can replace, and the
  // rest, which can be computed from it.
  void Keep(Operator half, std::uint64_t layer, Turn turn) {
    const bool planned = job_.activations == Activations::kPlanned;
    const std::uint64_t parts = planned ? 2 : 1;
    const std::uint64_t id = parts * (2 * layer + (half == Operator::kMlp ? 1 : 0));
    if (turn == Turn::kBackward) {
      for (std::uint64_t i = id; i < id + parts; ++i) problem_.activations[i].consumed = moments_;
      return;
    }
    const Saved saved = SavedBytes(model_, half, job_.batch);
    problem_.activations.push_back({.id = id,
                                    .bytes = saved.input_bytes,
                                    .produced = moments_,
                                    .can_recompute = false,
                                    .can_offload = planned});
    if (!planned) return;
    problem_.activations.push_back({.id = id + 1,
                                    .bytes = saved.rest_bytes,
                                    .produced = moments_,
                                    .recompute_seconds = Seconds(half, turn)});
  }

  void AddChunks() {
    const std::uint64_t world = job_.ranks;
    const std::uint64_t moments = job_.optimizer.moment_bytes;
    for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
      const std::uint64_t shard = layout_.chunks[c].elements / world;
      problem_.trace.chunks.push_back(
          {.id = c,
           .size_bytes =
               base::RoundUp(layout_.chunks[c].elements * kElementBytes, kExtentAlignmentBytes),
           .transfer_bytes = shard * kElementBytes,
           .gradient_bytes = shard * kElementBytes});
      problem_.optimizer.push_back({.parameters = shard,
                                    .weight_bytes = shard * kElementBytes,
                                    .remainder_bytes = shard * kRemainderBytes,
                                    .moment_bytes = shard * moments,
                                    .gradient_bytes = shard * kElementBytes});
    }
  }

  void AddMoments() {
    for (const zero::Moment& moment : recorder_.Moments()) {
      planner::MomentTrace& to = problem_.trace.moments.emplace_back();
      to.workspace_bytes = moment.workspace_bytes;
      to.compute_seconds = moment.compute_seconds;
      for (const zero::Moment::Use& use : moment.uses) {
        to.uses.push_back({.chunk = use.chunk, .invalidates = use.invalidates});
      }
    }
  }

  void Finish() {
    problem_.machine = MakeMachine(job_);
    problem_.trace.arena_bytes = RoundDownToExtent(job_.hardware.usable_bytes());
    problem_.trace.link.h2d_bytes_per_second = problem_.machine.up_bytes_per_second;
    problem_.trace.link.d2h_bytes_per_second = problem_.machine.down_bytes_per_second;
    problem_.trace.link.latency_seconds = problem_.machine.latency_seconds;
    problem_.options.planner = EnginePlannerOptions();
  }

  const Model& model_;
  const Job& job_;
  std::vector<Tensor> tensors_;
  zero::Layout layout_;
  std::vector<std::uint32_t> embedding_, output_;
  std::vector<std::vector<std::uint32_t>> attention_, mlp_;  // by layer
  std::vector<int> gradients_missing_;                       // by chunk
  zero::Recorder recorder_;
  planner::Moment moments_ = 0;
  planner::HierarchyProblem problem_;
};

absl::Status CheckPositive(const char* what, double value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, "; it must be more than 0"));
}

absl::Status CheckRanks(const Job& job) {
  if (job.nodes == 0 || job.ranks == 0 || job.ranks > kRanksMax || job.ranks % job.nodes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", job.ranks, " ranks on ", job.nodes,
                                                   " nodes; there must be from 1 to ", kRanksMax,
                                                   " ranks, as many on each node"));
  }
  const std::uint64_t longest = job.batch.sequence_length;
  if (job.batch.sequences < 1 || longest < 1 || job.batch.sequences > kTokensMax ||
      longest > kTokensMax || job.batch.tokens() > kTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", job.batch.sequences, " sequences of ", longest,
                     " tokens; there must be from 1 to ", kTokensMax, " tokens in all"));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Optimizer> Optimizers() {
  constexpr std::uint64_t kTwo = 2 * kFloatBytes;
  constexpr std::uint64_t kOne = kFloatBytes;
  static constexpr Optimizer kOptimizers[] = {
      {"adamw", kTwo}, {"adam", kTwo},    {"lamb", kTwo},         {"lars", kOne},
      {"lion", kOne},  {"adagrad", kOne}, {"sgd-momentum", kOne}, {"sgd", 0},
  };
  return kOptimizers;
}

absl::StatusOr<Optimizer> FindOptimizer(const std::string& name) {
  std::string names;
  for (const Optimizer& optimizer : Optimizers()) {
    if (name == optimizer.name) return optimizer;
    absl::StrAppend(&names, names.empty() ? "" : ", ", optimizer.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no optimizer '", name, "'; use one of ", names));
}

absl::Status Validate(const Job& job) {
  const Hardware& hardware = job.hardware;
  if (hardware.reserved_bytes + kExtentAlignmentBytes > hardware.device_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the device has ", hardware.device_bytes, " bytes, of which ",
                     hardware.reserved_bytes, " are reserved for its driver; nothing is left"));
  }
  if (hardware.usable_bytes() > kMaxArenaBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the device has ", hardware.device_bytes,
                                                   " bytes; one arena holds at most ",
                                                   kMaxArenaBytes));
  }
  GEMINID_RETURN_IF_ERROR(CheckRanks(job));
  struct Rate {
    const char* what;
    double value;
  };
  for (const Rate& rate :
       {Rate{"the compute rate", hardware.flops},
        Rate{"the achieved share of the compute rate", hardware.achieved_share},
        Rate{"the rate of device memory", hardware.device_memory_bytes_per_second},
        Rate{"the rate of the link up", hardware.up_bytes_per_second},
        Rate{"the rate of the link down", hardware.down_bytes_per_second},
        Rate{"the rate between devices", hardware.peer_bytes_per_second},
        Rate{"the rate between nodes", hardware.network_bytes_per_second},
        Rate{"the rate of host memory", hardware.host_memory_bytes_per_second}}) {
    GEMINID_RETURN_IF_ERROR(CheckPositive(rate.what, rate.value));
  }
  if (job.disk_bytes > 0) {
    GEMINID_RETURN_IF_ERROR(
        CheckPositive("the read rate of the disk", job.disk_read_bytes_per_second));
    GEMINID_RETURN_IF_ERROR(
        CheckPositive("the write rate of the disk", job.disk_write_bytes_per_second));
  }
  return absl::OkStatus();
}

planner::PlannerOptions EnginePlannerOptions() {
  planner::PlannerOptions options;
  options.drain_moments = kDrainMoments;
  options.alignment_bytes = kExtentAlignmentBytes;
  return options;
}

std::uint64_t RoundDownToExtent(std::uint64_t bytes) {
  return bytes / kExtentAlignmentBytes * kExtentAlignmentBytes;
}

planner::Machine MakeMachine(const Job& job) {
  const Hardware& hardware = job.hardware;
  const std::uint64_t local = job.ranks_per_node();
  const bool disk = job.disk_bytes > 0;
  return {.up_bytes_per_second = hardware.up_bytes_per_second,
          .down_bytes_per_second = hardware.down_bytes_per_second,
          .both_bytes_per_second = hardware.both_bytes_per_second,
          .latency_seconds = kCopyLatencySeconds,
          .host_memory_bytes_per_second = hardware.host_memory_bytes_per_second,
          .cpu_update_share = job.cpu_update_share,
          .device_memory_bytes_per_second = hardware.device_memory_bytes_per_second,
          .disk_read_bytes_per_second = disk ? job.disk_read_bytes_per_second : 0,
          .disk_write_bytes_per_second = disk ? job.disk_write_bytes_per_second : 0,
          .disk_endurance_bytes = disk ? job.disk_endurance_bytes : 0,
          .host_bytes = job.host_bytes / local,
          .disk_bytes = job.disk_bytes / local,
          .ranks_on_node = static_cast<std::uint32_t>(local),
          .world_size = job.ranks};
}

absl::StatusOr<planner::HierarchyProblem> MakeProblem(const Model& model, const Job& job) {
  GEMINID_RETURN_IF_ERROR(Validate(model));
  GEMINID_RETURN_IF_ERROR(Validate(job));
  return Builder(model, job).Make();
}

}  // namespace geminid::forecast
