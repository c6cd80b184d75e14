// Compares the modes of tensor parallelism for growing numbers of ranks. Pure.
#ifndef GEMINID_TRAINING_MESHES_COMPARE_H_
#define GEMINID_TRAINING_MESHES_COMPARE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "training/meshes/choose.h"

namespace geminid::parallel {

// The numbers of ranks in the tables: a node, 64 as both a square and a cube, and two cubes.
inline constexpr int kComparedRanks[] = {8, 64, 512, 1000};

struct ComparedGrid {
  MeshSpec mesh;  // tensor alone
  // For one rank: the activations kept for the backward pass, and the weights with their state.
  double activation_bytes = 0;
  double state_bytes = 0;
  PlannedMesh planned;
};

// For each number of ranks, every mode that has a grid of so many; in 2.5D the deepest grid whose
// depth is at most its side. All ranks work on one batch of job.batch in one pass. Nodes have
// `ranks_per_node` ranks, or all ranks if that number does not divide them. Model and batch are
// divided as if all sizes could be, since no model has a thousand heads.
absl::StatusOr<std::vector<ComparedGrid>> CompareGrids(const forecast::Model& model,
                                                       const forecast::Job& job,
                                                       std::span<const int> ranks,
                                                       std::uint32_t ranks_per_node);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_COMPARE_H_
