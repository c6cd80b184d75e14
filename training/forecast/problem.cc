#include "training/forecast/problem.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/zero/basics/layout.h"
#include "client/zero/core/recorder.h"
#include "geminid/types.h"
#include "training/forecast/activation_places.h"
#include "training/forecast/trainer_layout.h"

namespace geminid::forecast {
namespace {

// A reduced chunk leaves the device during the operator after the one that completed its gradient,
// as in the engine.
constexpr std::uint32_t kDrainMoments = 1;
constexpr std::uint64_t kRemainderBytes = 2;
constexpr std::uint32_t kRanksMax = 1 << 20;
constexpr std::uint64_t kTokensMax = std::uint64_t{1} << 32;

// The link that a run on this machine would record.
planner::LinkModel LinkOf(const planner::Machine& machine) {
  const double sum = machine.up_bytes_per_second + machine.down_bytes_per_second;
  planner::LinkModel link;
  link.h2d_bytes_per_second = machine.up_bytes_per_second;
  link.d2h_bytes_per_second = machine.down_bytes_per_second;
  link.latency_seconds = machine.latency_seconds;
  if (machine.both_bytes_per_second > 0) {
    link.both_directions_share = std::clamp(machine.both_bytes_per_second / sum, 0.5, 1.0);
  }
  if (machine.node_up_bytes_per_second > 0) {
    link.uplink_bytes_per_second = machine.node_up_bytes_per_second;
    link.ranks_per_uplink = machine.ranks_on_node;
  }
  return link;
}

// The work of a rank that has the whole model and a batch of its own.
class WholeModel : public RankWork {
 public:
  WholeModel(const Model& model, const Job& job) : model_(model), job_(job) {}

  ModelPart part() const override { return {.layers = model_.layers}; }
  std::vector<Tensor> OwnTensors() const override { return Tensors(model_); }
  std::uint32_t sharing_ranks() const override { return job_.ranks; }
  double held_micro_batches() const override { return 0; }
  Saved SavedOf(Operator part) const override { return SavedBytes(model_, part, job_.batch); }
  std::uint64_t KeptOf(Operator part) const override {
    return TrainerSavedBytes(model_, part, job_.batch);
  }
  std::uint64_t WorkspaceOf(Operator op, PassDirection turn) const override {
    return WorkspaceBytes(model_, op, turn, job_.batch);
  }
  double SecondsOf(Operator op, PassDirection turn) const override {
    const Hardware& device = job_.hardware;
    const double computing =
        Operations(model_, op, turn, job_.batch) / (device.flops * device.achieved_share);
    const double moving =
        DeviceTraffic(model_, op, turn, job_.batch) / device.device_memory_bytes_per_second;
    return std::max(computing, moving);
  }

 private:
  const Model& model_;
  const Job& job_;
};

// Builds the problem of one rank, moment by moment.
class Builder {
 public:
  // `as_trainer`: the chunks are those of geminid-train.
  Builder(const Model& model, const Job& job, const RankWork& work, bool as_trainer)
      : model_(model), job_(job), work_(work), as_trainer_(as_trainer), range_(work.part()) {}

  absl::StatusOr<planner::TierProblem> Make() {
    tensors_ = work_.OwnTensors();
    GEMINID_RETURN_IF_ERROR(LayOut());
    gradients_missing_.assign(layout_.chunks.size(), 0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      gradients_missing_[layout_.tensors[i].chunk] += BackwardUses(tensors_[i]);
    }
    Forward();
    if (range_.outputs) Moment(Operator::kOutput, 0, PassDirection::kBackward);
    Backward();
    for (const std::size_t item : held_) problem_.activations[item].consumed = moments_ - 1;
    AddChunks();
    AddMoments();
    Finish();
    GEMINID_RETURN_IF_ERROR(CheckSizes());
    return std::move(problem_);
  }

 private:
  absl::StatusOr<zero::Layout> MakeLayout() const {
    if (as_trainer_) return TrainerLayout(model_, job_.optimizer, work_.sharing_ranks());
    std::vector<zero::TensorShape> shapes;
    for (const Tensor& tensor : tensors_) {
      shapes.push_back({.elements = tensor.elements(), .whole = job_.optimizer.StepsWhole(tensor)});
    }
    return zero::MakeLayout(shapes, {.world_size = static_cast<int>(work_.sharing_ranks()),
                                     .extent_bytes = kExtentAlignmentBytes});
  }

  absl::Status LayOut() {
    GEMINID_ASSIGN_OR_RETURN(layout_, MakeLayout());
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      of_operator_[{tensors_[i].used_by, tensors_[i].layer}].push_back(i);
      if (tensors_[i].also_output) of_operator_[{Operator::kOutput, 0}].push_back(i);
    }
    return absl::OkStatus();
  }

  // The operators that add to the tensor's gradient: encoder and decoder both look up the table.
  int BackwardUses(const Tensor& tensor) const {
    const bool twice = tensor.used_by == Operator::kEmbedding && model_.has_both();
    return 1 + (twice ? 1 : 0) + (tensor.also_output ? 1 : 0);
  }

  // Whether the decoder begins at this layer, after an encoder.
  bool JoinsAt(std::uint64_t layer) const {
    return model_.has_both() && layer == model_.encoder_layers();
  }

  void Forward() {
    if (range_.embeds) Moment(Operator::kEmbedding, 0, PassDirection::kForward);
    for (std::uint64_t layer = range_.first_layer; layer < range_.first_layer + range_.layers;
         ++layer) {
      if (JoinsAt(layer)) {
        encoder_output_ = problem_.activations.size();
        problem_.activations.push_back({.id = encoder_output_,
                                        .bytes = EncoderOutputBytes(model_, job_.batch),
                                        .produced = moments_ - 1,
                                        .can_recompute = false,
                                        .can_offload = false});
        Moment(Operator::kEmbedding, 0, PassDirection::kForward);
      }
      for (const Operator op : PartsOfLayer(model_, layer))
        Moment(op, layer, PassDirection::kForward);
    }
  }

  void Backward() {
    for (std::uint64_t layer = range_.first_layer + range_.layers; layer-- > range_.first_layer;) {
      std::vector<Operator> parts = PartsOfLayer(model_, layer);
      std::reverse(parts.begin(), parts.end());
      for (const Operator op : parts) Moment(op, layer, PassDirection::kBackward);
      if (JoinsAt(layer)) {
        Moment(Operator::kEmbedding, 0, PassDirection::kBackward);
        problem_.activations[encoder_output_].consumed = moments_;
      }
    }
    if (range_.embeds) Moment(Operator::kEmbedding, 0, PassDirection::kBackward);
  }

  void Moment(Operator op, std::uint64_t layer, PassDirection turn) {
    const std::vector<std::uint32_t>& tensors = of_operator_[{op, layer}];
    std::vector<std::uint32_t> chunks;
    for (const std::uint32_t tensor : tensors) chunks.push_back(layout_.tensors[tensor].chunk);
    recorder_.BeginMoment(chunks);
    std::uint64_t workspace = work_.WorkspaceOf(op, turn);
    double seconds = work_.SecondsOf(op, turn);
    if (IsPartOfLayer(op)) {
      if (job_.recomputes()) {
        // In either turn, the sublayer recomputes everything but its input.
        workspace += work_.SavedOf(op).rest_bytes;
        if (turn == PassDirection::kBackward)
          seconds += work_.SecondsOf(op, PassDirection::kForward);
      }
      Keep(op, layer, turn);
      if (turn == PassDirection::kBackward && !model_.is_encoder(layer)) {
        workspace += EncoderOutputBytes(model_, job_.batch);  // its gradient
      }
    }
    recorder_.NoteWorkspace(base::RoundUp(workspace, kExtentAlignmentBytes));
    recorder_.NoteCompute(seconds);
    if (turn == PassDirection::kBackward) {
      for (const std::uint32_t chunk : chunks) {
        recorder_.NoteGradient(chunk);
        if (--gradients_missing_[chunk] == 0) recorder_.NoteReduced(chunk);
      }
    }
    ++moments_;
  }

  // Adds the activation that a sublayer's forward saves for its backward: its input, or all that
  // its backward uses.
  void Keep(Operator part, std::uint64_t layer, PassDirection turn) {
    std::vector<planner::ActivationItem>& items = problem_.activations;
    if (turn == PassDirection::kBackward) {
      items[kept_[{part, layer}]].consumed = moments_;
      return;
    }
    kept_[{part, layer}] = items.size();
    items.push_back(
        {.id = items.size(),
         .bytes = job_.recomputes() ? work_.SavedOf(part).input_bytes : work_.KeptOf(part),
         .produced = moments_,
         .can_recompute = false,
         .can_offload = job_.offloads()});
    Hold(items.back().bytes);
  }

  // Adds the same activation for the micro-batches that are in other pipeline stages.
  void Hold(std::uint64_t bytes) {
    if (work_.held_micro_batches() == 0) return;
    const double held = std::ceil(work_.held_micro_batches() * static_cast<double>(bytes));
    held_.push_back(problem_.activations.size());
    problem_.activations.push_back({.id = held_.back(),
                                    .bytes = static_cast<std::uint64_t>(held),
                                    .produced = 0,
                                    .can_recompute = false,
                                    .can_offload = false});
  }

  void AddChunks() {
    const std::uint64_t world = work_.sharing_ranks();
    std::vector<std::uint64_t> tensor_state(layout_.chunks.size(), 0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensor_state[layout_.tensors[i].chunk] +=
          job_.optimizer.tensor_state_bytes(tensors_[i].rows, tensors_[i].columns);
    }
    for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
      const zero::ChunkShape& chunk = layout_.chunks[c];
      const std::uint64_t shard = chunk.elements / world;
      const std::uint64_t shard_bytes = chunk.bytes() / world;
      const bool has_remainder = chunk.type == zero::DataType::kBFloat16;
      const std::uint64_t moments = chunk.whole ? job_.optimizer.matrix_moment_bytes_per_parameter()
                                                : job_.optimizer.moment_bytes_per_parameter();
      problem_.trace.chunks.push_back(
          {.id = c,
           .size_bytes = base::RoundUp(chunk.bytes(), kExtentAlignmentBytes),
           .transfer_bytes = shard_bytes,
           .gradient_bytes = shard_bytes});
      problem_.optimizer.push_back({.parameters = shard,
                                    .weight_bytes = shard_bytes,
                                    .remainder_bytes = has_remainder ? shard * kRemainderBytes : 0,
                                    .moment_bytes = shard * moments + tensor_state[c],
                                    .gradient_bytes = shard_bytes});
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
    problem_.trace.link = LinkOf(problem_.machine);
    problem_.planner_options = EnginePlannerOptions();
    problem_.device_spare_bytes += SpareBytes();
    std::uint64_t scales = 0;
    for (const auto& tensor : tensors_) {
      scales += job_.optimizer.device_scale_bytes(tensor.rows, tensor.columns);
    }
    problem_.device_spare_bytes += base::RoundUp(scales, kExtentAlignmentBytes);
  }

  // The engine's spare extents, one for each form of chunks, each of their parts in whole units.
  std::uint64_t SpareBytes() const {
    std::set<std::pair<zero::DataType, bool>> forms;
    std::uint64_t bytes = 0;
    for (const zero::ChunkShape& chunk : layout_.chunks) {
      if (!forms.emplace(chunk.type, chunk.whole).second) continue;
      const bool has_remainder = chunk.type == zero::DataType::kBFloat16;
      const std::uint64_t moments = chunk.whole ? job_.optimizer.matrix_moment_bytes_per_parameter()
                                                : job_.optimizer.moment_bytes_per_parameter();
      for (const std::uint64_t part :
           {chunk.element_bytes(), has_remainder ? kRemainderBytes : 0, moments}) {
        bytes += base::RoundUp(chunk.granule_elements * part, kExtentAlignmentBytes);
      }
    }
    return bytes;
  }

  // Refuses sizes that no plan can represent.
  absl::Status CheckSizes() const {
    std::uint64_t most = 0;
    for (const planner::ActivationItem& item : problem_.activations) {
      most = std::max(most, item.bytes);
    }
    std::uint64_t workspace = 0;
    for (const planner::MomentTrace& moment : problem_.trace.moments) {
      workspace = std::max(workspace, moment.workspace_bytes);
    }
    if (most <= planner::kMaxChunkBytes && workspace <= kMaxArenaBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "it does not fit any device: with ", job_.batch.sequences, " x ",
        job_.batch.sequence_length, " tokens one part of a layer keeps ", base::FormatBytes(most),
        " of activations and works in ", base::FormatBytes(workspace), ", of which at most ",
        base::FormatBytes(planner::kMaxChunkBytes), " and ", base::FormatBytes(kMaxArenaBytes),
        " are possible; take a smaller batch or shorter sequences"));
  }

  const Model& model_;
  const Job& job_;
  const RankWork& work_;
  const bool as_trainer_;
  const ModelPart range_;
  std::vector<Tensor> tensors_;
  zero::Layout layout_;
  using Place = std::pair<Operator, std::uint64_t>;          // an operator and its layer
  std::map<Place, std::vector<std::uint32_t>> of_operator_;  // the tensors of each operator
  std::map<Place, std::size_t> kept_;                        // activation of each sublayer
  std::size_t encoder_output_ = 0;                           // index of an activation
  std::vector<std::size_t> held_;                            // indices of activations
  std::vector<int> gradients_missing_;                       // by chunk
  zero::Recorder recorder_;
  planner::Moment moments_ = 0;
  planner::TierProblem problem_;
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

absl::Status Validate(const Job& job) {
  const Hardware& hardware = job.hardware;
  if (hardware.reserved_bytes + kExtentAlignmentBytes > hardware.device_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the device has ", base::FormatBytes(hardware.device_bytes), ", of which ",
                     base::FormatBytes(hardware.reserved_bytes),
                     " are reserved for its driver; nothing is left"));
  }
  if (hardware.usable_bytes() > kMaxArenaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the device has ", base::FormatBytes(hardware.device_bytes),
                     "; one arena holds at most ", base::FormatBytes(kMaxArenaBytes)));
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
  return {.up_bytes_per_second = hardware.up_bytes_per_second,
          .down_bytes_per_second = hardware.down_bytes_per_second,
          .both_bytes_per_second = hardware.both_bytes_per_second,
          .node_up_bytes_per_second = hardware.node_link_bytes_per_second,
          .node_down_bytes_per_second = hardware.node_link_bytes_per_second,
          .latency_seconds = hardware.copy_latency_seconds,
          .host_memory_bytes_per_second = hardware.host_memory_bytes_per_second,
          .cpu_update_share = job.cpu_update_share,
          .device_memory_bytes_per_second = hardware.device_memory_bytes_per_second,
          .host_bytes = job.host_bytes / local,
          .ranks_on_node = static_cast<std::uint32_t>(local),
          .world_size = job.ranks};
}

absl::StatusOr<planner::TierProblem> MakeProblem(const Model& model, const Job& job) {
  GEMINID_RETURN_IF_ERROR(Validate(model));
  GEMINID_RETURN_IF_ERROR(Validate(job));
  GEMINID_ASSIGN_OR_RETURN(planner::TierProblem problem,
                           Builder(model, job, WholeModel(model, job), /*as_trainer=*/true).Make());
  if (job.offloads()) {
    GEMINID_ASSIGN_OR_RETURN(problem.most_activation_places, ActivationPlaces(model, job));
  }
  return problem;
}

absl::StatusOr<planner::TierProblem> MakeProblem(const Model& model, const Job& job,
                                                 const RankWork& work) {
  GEMINID_RETURN_IF_ERROR(Validate(model));
  GEMINID_RETURN_IF_ERROR(Validate(job));
  return Builder(model, job, work, /*as_trainer=*/false).Make();
}

}  // namespace geminid::forecast
