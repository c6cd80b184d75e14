// The mesh that the planner plans, from the text that mesh_axes.h reads.
//
// The pipeline is the outermost axis, then come data and sequence. Tensor, which communicates most,
// is innermost, so that its groups are within a node. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESH_SPEC_H_
#define GEMINID_TRAINING_MESHES_MESH_SPEC_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "training/meshes/mesh_axes.h"
#include "training/nn/parallel/stages/schedule.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::parallel {

struct MeshSpec {
  int pipeline = 1;                                                       // stages
  collectives::PipelineKind schedule = collectives::PipelineKind::k1F1B;  // or ZBV
  int data = 1;
  int sequence = 1;  // parts of each sequence
  SequenceMode sequence_mode = SequenceMode::kUlysses;
  collectives::TensorMode tensor_mode = collectives::TensorMode::k1D;
  int tensor = 1;  // ranks of the tensor-parallel grid
  int depth = 1;   // of 2.5D
  int zero = 3;    // ZeRO's stage
  // ZeRO's third stage gathers weights from other hosts once between updates.
  bool within_host = false;

  std::int64_t ranks() const { return std::int64_t{pipeline} * data * sequence * tensor; }
  // The number of layer ranges in each stage.
  int chunks() const { return in_halves() ? 2 : 1; }
  // Whether backward passes are in two halves.
  bool in_halves() const { return schedule == collectives::PipelineKind::kZeroBubbleV; }
  // The ranks among which ZeRO shards weights and state.
  int sharing_ranks() const { return data * sequence; }
  friend bool operator==(const MeshSpec&, const MeshSpec&) = default;
};

struct ParsedMesh {
  MeshSpec mesh;
  bool data_is_given = false;  // else data gets all ranks that the other axes leave
};

// INVALID_ARGUMENT for a mesh that cannot be planned; the message says which can.
absl::StatusOr<ParsedMesh> MeshToPlan(const MeshAxes& axes);
// The same for a text of axes. INVALID_ARGUMENT also as ParseMeshAxes.
absl::StatusOr<ParsedMesh> ParseMesh(const std::string& text);

// Canonical: axes of 1 are left out, and data=1 stands for a mesh of one rank.
std::string ToString(const MeshSpec& mesh);

// The mesh's grid of tensor-parallel ranks. The mesh comes from ParseMesh or MeshesOf.
collectives::TensorGrid GridOf(const MeshSpec& mesh);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_SPEC_H_
