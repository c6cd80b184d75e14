// How a model and a batch are divided among ranks, as people write it for --parallel:
//
//   pipeline=2,tensor=2.5d:size=8:depth=2,sequence=ulysses:2,data=2,zero=3
//   pipeline=interleaved:2:chunks=2,sequence=ring:2
//   expert=4,data=2
//   auto
//
// Each axis once, in any order. mesh_spec.h says which of these meshes can be planned, and
// training/settings/parallel.h which can be trained. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESH_AXES_H_
#define GEMINID_TRAINING_MESHES_MESH_AXES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "training/meshes/pipeline_axis.h"
#include "training/meshes/tensor_axis.h"

namespace geminid::parallel {

// How attention works over ranks that share sequences: by Ulysses' exchange of heads, or by passing
// keys and values round a ring.
enum class SequenceMode : std::uint8_t { kUlysses, kRing };

const char* Name(SequenceMode mode);  // "ulysses", "ring"

struct MeshAxes {
  bool automatic = false;  // the mesh is chosen once all ranks have met; the rest is unset
  int pipeline = 1;        // stages
  collectives::PipelineKind schedule = collectives::PipelineKind::k1F1B;
  int chunks = 1;    // parts of the model in each stage
  int sequence = 1;  // ranks that share each sequence
  SequenceMode sequence_mode = SequenceMode::kUlysses;
  std::optional<int> data = {};  // unset: all ranks that the other axes leave
  // The ranks that share each layer; sequence=megatron:N is tensor=1d-sequence:N.
  TensorAxis tensor = {};
  int expert = 1;                 // the ranks that share the experts of each layer
  int zero = 3;                   // ZeRO's stage
  bool zero_within_host = false;  // weights come from other hosts once between updates

  // Whether a rank has a part of the model, or slices of sequences.
  bool cuts() const { return cuts_model() || sequence > 1; }
  // Whether ranks have different parts of the model.
  bool cuts_model() const { return pipeline > 1 || tensor.size > 1 || expert > 1; }
  // Whether a rank has two chunks of each sequence (training/nn/parallel/sequence/zigzag.h).
  bool rings() const { return sequence > 1 && sequence_mode == SequenceMode::kRing; }
  // Whether layers are sharded over a grid: over more than the ranks of 1D, whose shards are layers
  // of their own.
  bool has_grid() const { return tensor.size > 1 && tensor.mode != collectives::TensorMode::k1D; }
  collectives::PipelineShape PipelineOf(int micro_batches) const {
    return {schedule, pipeline, micro_batches, chunks};
  }
  // The number of ranks that the axes need at least. It may be a little above kRanksMax.
  int least_ranks() const;
};

// More ranks than any cluster has.
inline constexpr int kRanksMax = 1 << 16;

// INVALID_ARGUMENT names the axis and its values: for unknown axes and modes, a repeated axis,
// sizes that are no numbers from 1 to kRanksMax, ranks that make no grid, and more than kRanksMax
// ranks in all.
absl::StatusOr<MeshAxes> ParseMeshAxes(const std::string& text);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_AXES_H_
