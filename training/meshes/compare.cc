#include "training/meshes/compare.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::parallel {
namespace {

using collectives::TensorMode;
using forecast::Activations;
using forecast::Job;
using forecast::Model;

std::vector<MeshSpec> GridsOf(int ranks) {
  std::vector<MeshSpec> grids;
  const auto add = [&](TensorMode mode, int depth) {
    const auto grid = collectives::TensorGrid::Make(mode, ranks, depth);
    if (!grid.ok() || grid->side() < depth) return;
    const MeshSpec mesh = {.tensor_mode = mode, .tensor = ranks, .depth = depth};
    // Deeper grids of 2.5D come later and take the place of those before.
    if (!grids.empty() && mode == TensorMode::k25D && grids.back().tensor_mode == mode) {
      grids.back() = mesh;
    } else {
      grids.push_back(mesh);
    }
  };
  add(TensorMode::k1D, 1);
  add(TensorMode::k1DSequence, 1);
  add(TensorMode::k2D, 1);
  for (int depth = 2; depth * depth * depth <= ranks; ++depth) add(TensorMode::k25D, depth);
  add(TensorMode::k3D, 1);
  return grids;
}

absl::StatusOr<ComparedGrid> Compare(const Model& model, const Job& job, const MeshSpec& mesh) {
  ComparedGrid compared = {.mesh = mesh, .planned = {}};
  const Activations activations = job.activations.value_or(Activations::kRecompute);
  const Setting setting = {.mesh = mesh, .micro_batches = 1, .activations = activations};
  GEMINID_ASSIGN_OR_RETURN(compared.planned, PlanRank(model, job, setting));
  const MeshRankWork work(model, job, mesh, {.layers = model.layers}, 1);
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    for (const forecast::Operator op : PartsOfLayer(model, layer)) {
      const forecast::Saved saved = work.SavedOf(op);
      compared.activation_bytes +=
          static_cast<double>(job.keeps() ? saved.bytes() : saved.input_bytes);
    }
  }
  for (const planner::OptimizerItem& item : compared.planned.fullest.problem.optimizer) {
    compared.state_bytes += static_cast<double>(item.state_bytes());
  }
  return compared;
}

}  // namespace

absl::StatusOr<std::vector<ComparedGrid>> CompareGrids(const Model& model, const Job& job,
                                                       std::span<const int> ranks,
                                                       std::uint32_t ranks_per_node) {
  GEMINID_RETURN_IF_ERROR(Validate(model));
  GEMINID_RETURN_IF_ERROR(CheckLayersCanBeCut(model));
  std::vector<ComparedGrid> all;
  for (const int count : ranks) {
    Job rank_job = job;
    rank_job.ranks = static_cast<std::uint32_t>(count);
    const bool whole = ranks_per_node > 0 && rank_job.ranks % ranks_per_node == 0;
    rank_job.nodes = whole ? rank_job.ranks / ranks_per_node : 1;
    for (const MeshSpec& mesh : GridsOf(count)) {
      GEMINID_ASSIGN_OR_RETURN(ComparedGrid compared, Compare(model, rank_job, mesh));
      all.push_back(std::move(compared));
    }
  }
  return all;
}

}  // namespace geminid::parallel
