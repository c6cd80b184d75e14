#include "training/meshes/mesh_cost.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "training/meshes/sharing.h"
#include "training/nn/parallel/stages/held_bytes.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::parallel {
namespace {

using forecast::Job;
using forecast::Model;
using forecast::Operator;
using forecast::PassDirection;

// Layers of the same parts.
struct LayerKind {
  std::uint64_t first = 0;
  double count = 0;
};
std::vector<LayerKind> KindsOf(const Model& model, const forecast::ModelPart& range) {
  const std::uint64_t end = range.first_layer + range.layers;
  const std::uint64_t split = std::clamp(model.encoder_layers(), range.first_layer, end);
  std::vector<LayerKind> kinds;
  if (split > range.first_layer)
    kinds.push_back({range.first_layer, static_cast<double>(split - range.first_layer)});
  if (end > split) kinds.push_back({split, static_cast<double>(end - split)});
  return kinds;
}

// A stage that has the whole model.
MeshRankWork WholeWork(const Model& model, const Job& rank_job, const MeshSpec& mesh) {
  return MeshRankWork(model, rank_job, mesh, {.layers = model.layers}, 1);
}

double LayerSeconds(const Model& model, const Job& rank_job, const MeshRankWork& work) {
  double seconds = 0;
  for (const Operator op : PartsOfLayer(model, 0)) {
    const double forward = work.SecondsOf(op, PassDirection::kForward);
    seconds +=
        (rank_job.recomputes() ? 2 : 1) * forward + work.SecondsOf(op, PassDirection::kBackward);
  }
  return seconds;
}

// The parameters of a stage, and of them the most that one operator has.
struct OwnElements {
  std::uint64_t all = 0;
  std::uint64_t of_operator = 0;
  double bytes() const { return static_cast<double>(all * forecast::kElementBytes); }
};

OwnElements ElementsOf(const MeshRankWork& work) {
  OwnElements elements;
  std::map<std::pair<Operator, std::uint64_t>, std::uint64_t> of;  // by operator and layer
  for (const forecast::Tensor& tensor : work.OwnTensors()) {
    elements.all += tensor.elements();
    std::uint64_t& one = of[{tensor.used_by, tensor.layer}];
    one += tensor.elements();
    elements.of_operator = std::max(elements.of_operator, one);
  }
  return elements;
}

std::uint64_t StayingBytesOf(const Job& job, const Setting& setting, const OwnElements& own) {
  if (setting.mesh.zero == 3 || setting.mesh.sharing_ranks() == 1) return 0;
  const bool sums = setting.mesh.zero == 1 && setting.micro_batches > 1;
  return own.of_operator * forecast::kElementBytes + (sums ? own.all * job.float_bytes : 0);
}

// What no plan does with less: each weight is gathered once and each gradient reduced once.
struct LeastSharing {
  Sharing in_pass;  // with each micro-batch
  Sharing in_step;  // once
};
LeastSharing LeastSharingOf(const Setting& setting, const Job& rank_job, const OwnElements& own) {
  const SharingTurns turns = TurnsOf(setting);
  LeastSharing least;
  least.in_pass.over_all = {turns.in_pass * own.bytes(), turns.in_pass};
  least.in_step.over_all = {turns.in_step * own.bytes(), turns.in_step};
  if (setting.mesh.zero != 3) return least;
  least.in_pass = SharingOf(setting.mesh, rank_job,
                            {.bytes = 2 * own.bytes(),
                             .collectives = 2,
                             .gather_bytes = own.bytes(),
                             .gathers = 1,
                             .chunk_bytes = own.bytes(),
                             .chunks = 1},
                            setting.micro_batches);
  return least;
}

// While the last part's backward runs nothing is freed yet, and while the loss is computed neither.
std::uint64_t LeastDeviceBytes(const Model& model, const Job& rank_job, const MeshRankWork& work,
                               double in_flight) {
  const forecast::ModelPart range = work.part();
  std::uint64_t saved = 0, workspace = 0;
  for (const Operator op : PartsOfLayer(model, range.first_layer)) {
    const forecast::Saved part = work.SavedOf(op);
    saved += rank_job.keeps() ? part.bytes() : part.input_bytes;
    // All but the last part's are still there, so the least of them counts.
    workspace = work.WorkspaceOf(op, PassDirection::kBackward);
    if (rank_job.recomputes()) workspace += part.rest_bytes;
  }
  if (range.outputs) {
    workspace = std::max(workspace, work.WorkspaceOf(Operator::kOutput, PassDirection::kBackward));
  }
  return static_cast<std::uint64_t>(static_cast<double>(saved * range.layers) * in_flight) +
         workspace;
}

}  // namespace

absl::StatusOr<Job> RankJobOf(const Job& job, const Setting& setting) {
  Job rank_job = job;
  GEMINID_ASSIGN_OR_RETURN(rank_job.batch, MicroBatchOf(job, setting));
  rank_job.activations = setting.activations;
  return rank_job;
}

std::vector<Stage> StagesOf(const Model& model, const Job& rank_job, const Setting& setting) {
  const int stages = setting.mesh.pipeline;
  const MeshRankWork whole = WholeWork(model, rank_job, setting.mesh);
  const double output = whole.SecondsOf(Operator::kOutput, PassDirection::kBackward);
  const double layer = LayerSeconds(model, rank_job, whole);
  std::vector<Stage> all;
  const int chunks = setting.mesh.chunks();
  const std::vector<forecast::ModelPart> parts =
      SplitLayers(model.layers, output / layer, chunks * stages);
  for (int stage = 0; stage < stages; ++stage) {
    const auto first = static_cast<std::size_t>(stage);
    Stage made = {.layers = parts[first], .parts = {parts[first]}};
    if (setting.mesh.in_halves()) {
      const forecast::ModelPart& back = parts[parts.size() - 1 - first];
      made.parts.push_back(back);
      made.layers.layers += back.layers;
      made.layers.outputs = back.outputs;
    } else {
      made.in_flight = static_cast<double>(InFlight(stages, setting.micro_batches, stage));
    }
    all.push_back(std::move(made));
  }
  return all;
}

double InFlightInHalves(const Model& model, const Job& rank_job, const MeshSpec& mesh,
                        const Stage& stage,
                        const std::vector<collectives::PipelineAction>& actions) {
  std::vector<collectives::PartBytes> parts;
  std::uint64_t whole = 0;  // of one micro-batch in all parts
  for (const forecast::ModelPart& range : stage.parts) {
    const MeshRankWork work(model, rank_job, mesh, range, 1);
    collectives::PartBytes bytes;
    for (const Operator op : PartsOfLayer(model, range.first_layer)) {
      const forecast::Saved saved = work.SavedOf(op);
      bytes.forward += range.layers * (rank_job.recomputes() ? saved.input_bytes : saved.bytes());
      bytes.later += range.layers * work.LaterBytesOf(op);
    }
    if (range.embeds) bytes.later += work.LaterBytesOf(Operator::kEmbedding);
    if (range.outputs) bytes.later += work.LaterBytesOf(Operator::kOutput);
    whole += bytes.forward;
    parts.push_back(bytes);
  }
  const auto most = static_cast<double>(collectives::MostHeldBytes(actions, parts));
  return std::max(1.0, most / static_cast<double>(whole));
}

PassCost PassCostOf(const Model& model, const Job& rank_job, const MeshRankWork& work) {
  PassCost cost;
  const auto add = [&](Operator op, PassDirection turn, double times, double* seconds) {
    *seconds += times * work.SecondsOf(op, turn);
    if (seconds == &cost.backward_seconds && turn == PassDirection::kBackward) {
      cost.weight_seconds += times * work.WeightSecondsOf(op);
    }
    cost.compute_seconds += times * work.ComputeSecondsOf(op, turn);
    cost.received_bytes += times * work.ReceivedBytesOf(op, turn);
  };
  const forecast::ModelPart range = work.part();
  for (const LayerKind& kind : KindsOf(model, range)) {
    for (const Operator op : PartsOfLayer(model, kind.first)) {
      add(op, PassDirection::kForward, kind.count, &cost.forward_seconds);
      add(op, PassDirection::kBackward, kind.count, &cost.backward_seconds);
      if (rank_job.recomputes())
        add(op, PassDirection::kForward, kind.count, &cost.backward_seconds);
    }
  }
  if (range.embeds) {
    add(Operator::kEmbedding, PassDirection::kForward, 1, &cost.forward_seconds);
    add(Operator::kEmbedding, PassDirection::kBackward, 1, &cost.backward_seconds);
  }
  if (range.outputs) add(Operator::kOutput, PassDirection::kBackward, 1, &cost.backward_seconds);
  return cost;
}

int PartnersOf(const MeshSpec& mesh) {
  const auto grid = TrafficOf(GridOf(mesh), collectives::LinearRole::kFirst, {1, 1, 1});
  return grid.partners + mesh.sharing_ranks() - 1 + std::min(mesh.pipeline - 1, 2);
}

double TransferSeconds(const Job& job, const MeshSpec& mesh, const MeshRankWork& work) {
  if (mesh.pipeline == 1) return 0;
  const Link link = LinkOf(PipelineGroup(mesh), job);
  return work.BoundaryBytes() / link.bytes_per_second + link.message_seconds +
         job.hardware.exchange_seconds;
}

// From the stages before and after, in ZBV for each of two parts.
double BoundaryBytesReceived(const MeshSpec& mesh, const MeshRankWork& work) {
  return mesh.chunks() * std::min(mesh.pipeline - 1, 2) * work.BoundaryBytes();
}

double TiedTableBytes(const Model& model, const MeshSpec& mesh) {
  // In ZBV both ends are in the first stage.
  if (mesh.pipeline == 1 || mesh.in_halves()) return 0;
  if (!model.tied_output() || model.classifies()) return 0;
  const double elements = static_cast<double>(model.vocabulary * model.table_columns());
  const auto share = TrafficOf(GridOf(mesh), collectives::LinearRole::kFirst, {1, 1, 1});
  return elements * share.weight_elements * forecast::kElementBytes;
}

SharingTurns TurnsOf(const Setting& setting) {
  if (setting.mesh.zero == 3) return {.in_pass = 2};
  if (setting.mesh.zero == 2 || setting.micro_batches == 1) return {.in_pass = 1, .in_step = 1};
  return {.in_step = 2};
}

std::uint64_t StayingBytes(const Job& job, const Setting& setting, const MeshRankWork& work) {
  return StayingBytesOf(job, setting, ElementsOf(work));
}

absl::StatusOr<Cost> CostOf(const Model& model, const Job& job, const Setting& setting) {
  GEMINID_ASSIGN_OR_RETURN(const Job rank_job, RankJobOf(job, setting));
  return CostOfRank(model, rank_job, setting);
}

absl::StatusOr<Cost> CostOfRank(const Model& model, const Job& rank_job, const Setting& setting) {
  const auto passes = static_cast<double>(setting.micro_batches);
  Cost cost = {.partners = PartnersOf(setting.mesh)};
  double slowest = -1;
  double least_forward = std::numeric_limits<double>::infinity();
  PassSeconds pass;
  for (const Stage& stage : StagesOf(model, rank_job, setting)) {
    const MeshRankWork work(model, rank_job, setting.mesh, stage.layers, stage.in_flight);
    const OwnElements own = ElementsOf(work);
    std::uint64_t least = LeastDeviceBytes(model, rank_job, work, stage.in_flight);
    if (const std::uint64_t staying = StayingBytesOf(rank_job, setting, own); staying > 0) {
      least += staying + own.all * forecast::kElementBytes;
    }
    cost.least_device_bytes = std::max(cost.least_device_bytes, least);
    const PassCost of = PassCostOf(model, rank_job, work);
    const double seconds = of.forward_seconds + of.backward_seconds;
    const LeastSharing sharing = LeastSharingOf(setting, rank_job, own);
    const double bound = std::max(seconds, SharingSeconds(setting.mesh, rank_job, sharing.in_pass));
    least_forward = std::min(least_forward, of.forward_seconds);
    if (bound <= slowest) continue;
    slowest = bound;
    pass = {.forward = of.forward_seconds * bound / seconds,
            .backward = of.backward_seconds * bound / seconds,
            .weights = of.weight_seconds * bound / seconds,
            .transfer = TransferSeconds(rank_job, setting.mesh, work)};
    cost.compute_seconds = passes * of.compute_seconds;
    cost.exchange_seconds = passes * std::max(0.0, seconds - of.compute_seconds);
    cost.received_bytes =
        passes * (of.received_bytes + SharedBytes(setting.mesh, rank_job, sharing.in_pass) +
                  BoundaryBytesReceived(setting.mesh, work)) +
        SharedBytes(setting.mesh, rank_job, sharing.in_step);
  }
  if (setting.mesh.in_halves()) {
    // The plan's slowest stage may be another, with a shorter way in.
    const double forward = std::min(pass.forward, least_forward);
    pass.backward += pass.forward - forward;
    pass.forward = forward;
    cost.least_step_seconds = LeastStepInHalves(setting.mesh.pipeline, setting.micro_batches, pass);
    return cost;
  }
  GEMINID_ASSIGN_OR_RETURN(const PipelineStep step,
                           StepOf(setting.mesh.pipeline, setting.micro_batches, pass));
  cost.least_step_seconds = step.seconds;
  return cost;
}

}  // namespace geminid::parallel
