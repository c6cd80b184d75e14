#include "tools/parallel/mesh_cost.h"

#include <algorithm>

#include "base/status_macros.h"
#include "collectives/tensor_parallel/tensor_traffic.h"
#include "tools/parallel/sharing.h"

namespace geminid::parallel {
namespace {

using forecast::Activations;
using forecast::Job;
using forecast::Model;
using forecast::Operator;
using forecast::Turn;

// Layers of the same parts.
struct LayerKind {
  std::uint64_t first = 0;
  double count = 0;
};
std::vector<LayerKind> KindsOf(const Model& model, const forecast::LayerRange& range) {
  const std::uint64_t end = range.first + range.count;
  const std::uint64_t split = std::clamp(model.encoder_layers, range.first, end);
  std::vector<LayerKind> kinds;
  if (split > range.first) kinds.push_back({range.first, static_cast<double>(split - range.first)});
  if (end > split) kinds.push_back({split, static_cast<double>(end - split)});
  return kinds;
}

bool Recomputes(const Job& job) { return job.activations == Activations::kRecompute; }

// A stage that has the whole model.
CutWork WholeWork(const Model& model, const Job& rank_job, const MeshSpec& mesh) {
  return CutWork(model, rank_job, mesh, {.first = 0, .count = model.layers}, 1);
}

double LayerSeconds(const Model& model, const Job& rank_job, const CutWork& work) {
  double seconds = 0;
  for (const Operator op : PartsOfLayer(model, 0)) {
    const double forward = work.SecondsOf(op, Turn::kForward);
    seconds += (Recomputes(rank_job) ? 2 : 1) * forward + work.SecondsOf(op, Turn::kBackward);
  }
  return seconds;
}

double OwnParameters(const CutWork& work) {
  double elements = 0;
  for (const forecast::Tensor& tensor : work.OwnTensors()) {
    elements += static_cast<double>(tensor.elements());
  }
  return elements;
}

// While the last part's backward runs nothing is freed yet, and while the loss is computed neither.
std::uint64_t LeastDeviceBytes(const Model& model, const Job& rank_job, const CutWork& work,
                               std::uint64_t in_flight) {
  const forecast::LayerRange range = work.layers();
  std::uint64_t saved = 0, workspace = 0;
  for (const Operator op : PartsOfLayer(model, range.first)) {
    const forecast::Saved part = work.SavedOf(op);
    saved += rank_job.activations == Activations::kKeep ? part.bytes() : part.input_bytes;
    // All but the last part's are still there, so the least of them counts.
    workspace = work.WorkspaceOf(op, Turn::kBackward);
    if (Recomputes(rank_job)) workspace += part.rest_bytes;
  }
  if (range.outputs) {
    workspace = std::max(workspace, work.WorkspaceOf(Operator::kOutput, Turn::kBackward));
  }
  // What is planned may leave the device.
  if (rank_job.activations == Activations::kPlanned) return workspace;
  return saved * range.count * in_flight + workspace;
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
  const CutWork whole = WholeWork(model, rank_job, setting.mesh);
  const double output = whole.SecondsOf(Operator::kOutput, Turn::kBackward);
  const double layer = LayerSeconds(model, rank_job, whole);
  std::vector<Stage> all;
  for (const forecast::LayerRange& range : SplitLayers(model.layers, output / layer, stages)) {
    const int stage = static_cast<int>(all.size());
    all.push_back({.layers = range, .in_flight = InFlight(stages, setting.micro_batches, stage)});
  }
  return all;
}

PassCost PassCostOf(const Model& model, const Job& rank_job, const CutWork& work) {
  PassCost cost;
  const auto add = [&](Operator op, Turn turn, double times, double* seconds) {
    *seconds += times * work.SecondsOf(op, turn);
    cost.compute_seconds += times * work.ComputeSecondsOf(op, turn);
    cost.received_bytes += times * work.ReceivedBytesOf(op, turn);
  };
  const forecast::LayerRange range = work.layers();
  for (const LayerKind& kind : KindsOf(model, range)) {
    for (const Operator op : PartsOfLayer(model, kind.first)) {
      add(op, Turn::kForward, kind.count, &cost.forward_seconds);
      add(op, Turn::kBackward, kind.count, &cost.backward_seconds);
      if (Recomputes(rank_job)) add(op, Turn::kForward, kind.count, &cost.backward_seconds);
    }
  }
  if (range.embeds) {
    add(Operator::kEmbedding, Turn::kForward, 1, &cost.forward_seconds);
    add(Operator::kEmbedding, Turn::kBackward, 1, &cost.backward_seconds);
  }
  if (range.outputs) add(Operator::kOutput, Turn::kBackward, 1, &cost.backward_seconds);
  return cost;
}

int PartnersOf(const MeshSpec& mesh) {
  const auto grid = TrafficOf(GridOf(mesh), collectives::LinearRole::kFirst, {1, 1, 1});
  return grid.partners + mesh.sharing_ranks() - 1 + std::min(mesh.pipeline - 1, 2);
}

double TransferSeconds(const Job& job, const MeshSpec& mesh, const CutWork& work) {
  if (mesh.pipeline == 1) return 0;
  const Link link = LinkOf(PipelineGroup(mesh), job);
  return work.BoundaryBytes() / link.bytes_per_second + link.message_seconds +
         job.hardware.exchange_seconds;
}

double TiedTableBytes(const Model& model, const MeshSpec& mesh) {
  if (mesh.pipeline == 1 || !model.tied_output || model.classifies()) return 0;
  const double elements = static_cast<double>(model.vocabulary * model.table_columns());
  const auto share = TrafficOf(GridOf(mesh), collectives::LinearRole::kFirst, {1, 1, 1});
  return elements * share.weight_elements * forecast::kElementBytes;
}

absl::StatusOr<Cost> CostOf(const Model& model, const Job& job, const Setting& setting) {
  GEMINID_ASSIGN_OR_RETURN(const Job rank_job, RankJobOf(job, setting));
  return CostOfRank(model, rank_job, setting);
}

absl::StatusOr<Cost> CostOfRank(const Model& model, const Job& rank_job, const Setting& setting) {
  const auto passes = static_cast<double>(setting.micro_batches);
  Cost cost = {.partners = PartnersOf(setting.mesh)};
  double slowest = -1;
  PassSeconds pass;
  for (const Stage& stage : StagesOf(model, rank_job, setting)) {
    const CutWork work(model, rank_job, setting.mesh, stage.layers, stage.in_flight);
    cost.least_device_bytes =
        std::max(cost.least_device_bytes, LeastDeviceBytes(model, rank_job, work, stage.in_flight));
    const PassCost of = PassCostOf(model, rank_job, work);
    const double seconds = of.forward_seconds + of.backward_seconds;
    // Each weight is gathered once and each gradient reduced once.
    const double own = OwnParameters(work) * forecast::kElementBytes;
    const Sharing shared = SharingOf(setting.mesh, rank_job,
                                     {.bytes = 2 * own,
                                      .collectives = 2,
                                      .gather_bytes = own,
                                      .gathers = 1,
                                      .chunk_bytes = own,
                                      .chunks = 1},
                                     setting.micro_batches);
    const double bound = std::max(seconds, SharingSeconds(setting.mesh, rank_job, shared));
    if (bound <= slowest) continue;
    slowest = bound;
    pass = {.forward = of.forward_seconds * bound / seconds,
            .backward = of.backward_seconds * bound / seconds,
            .transfer = TransferSeconds(rank_job, setting.mesh, work)};
    cost.compute_seconds = passes * of.compute_seconds;
    cost.exchange_seconds = passes * std::max(0.0, seconds - of.compute_seconds);
    const double stages = std::min(setting.mesh.pipeline - 1, 2);
    cost.received_bytes =
        passes * (of.received_bytes + SharedBytes(setting.mesh, rank_job, shared) +
                  stages * work.BoundaryBytes());
  }
  GEMINID_ASSIGN_OR_RETURN(const PipelineStep step,
                           StepOf(setting.mesh.pipeline, setting.micro_batches, pass));
  cost.least_step_seconds = step.seconds;
  return cost;
}

}  // namespace geminid::parallel
