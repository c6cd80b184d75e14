// Compares the modes of tensor parallelism over more and more ranks. Pure.
#ifndef GEMINID_TRAINING_MESHES_COMPARE_H_
#define GEMINID_TRAINING_MESHES_COMPARE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "training/meshes/choose.h"

namespace geminid::parallel {

// The numbers of ranks that tables have: a node, 64 as both a square and a cube, and two cubes.
inline constexpr int kComparedRanks[] = {8, 64, 512, 1000};

struct ComparedGrid {
  MeshSpec mesh;  // tensor alone
  // Of one rank: what it keeps for the backward, and the optimizer's state with the weights.
  double activation_bytes = 0;
  double state_bytes = 0;
  PlannedMesh planned;
};

// For each number of ranks every mode that they make a grid of, all ranks on one batch of
// job.batch in one pass; of 2.5D the deepest grid whose depth is no more than its side. Nodes have
// `ranks_per_node` ranks; where that does not divide, all that there are. Model and batch are cut
// as if all sizes could be, since none has a thousand heads.
absl::StatusOr<std::vector<ComparedGrid>> CompareGrids(const forecast::Model& model,
                                                       const forecast::Job& job,
                                                       std::span<const int> ranks,
                                                       std::uint32_t ranks_per_node);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_COMPARE_H_
