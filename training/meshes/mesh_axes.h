// How a model and a batch are cut over ranks, as people write it for --parallel:
//
//   pipeline=2,tensor=2.5d:size=8:depth=2,sequence=ulysses:2,data=2,zero=3
//   pipeline=interleaved:2:chunks=2,sequence=ring:2
//   expert=4,data=2
//   auto
//
// Each axis once, in any order. This is all that can be written; what of it is planned says
// mesh_spec.h, what is trained training/settings/parallel.h. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESH_AXES_H_
#define GEMINID_TRAINING_MESHES_MESH_AXES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "training/meshes/pipeline_axis.h"
#include "training/meshes/tensor_axis.h"

namespace geminid::parallel {

// How ranks that have parts of the same sequences attend: by Ulysses' exchange of heads, or with
// keys and values going round.
enum class SequenceMode : std::uint8_t { kUlysses, kRing };

const char* Name(SequenceMode mode);  // "ulysses", "ring"

struct MeshAxes {
  bool automatic = false;  // nothing else is known before all ranks are there
  int pipeline = 1;        // stages
  collectives::PipelineKind schedule = collectives::PipelineKind::k1F1B;
  int chunks = 1;    // parts of the model that each stage has
  int sequence = 1;  // parts that each sequence is cut into
  SequenceMode sequence_mode = SequenceMode::kUlysses;
  std::optional<int> data = {};  // unset: what the other axes leave of the ranks
  // The ranks that each layer is cut over; sequence=megatron:N is tensor=1d-sequence:N.
  TensorAxis tensor = {};
  int expert = 1;                 // the ranks that the experts of each layer are spread over
  int zero = 3;                   // ZeRO's stage
  bool zero_within_host = false;  // weights come from other hosts once between updates

  // Whether a rank has less than a whole model, or than whole sequences.
  bool cuts() const { return cuts_model() || sequence > 1; }
  // Whether ranks have different parts of the model.
  bool cuts_model() const { return pipeline > 1 || tensor.size > 1 || expert > 1; }
  // Whether a rank has two chunks of each sequence (training/nn/parallel/sequence/zigzag.h).
  bool rings() const { return sequence > 1 && sequence_mode == SequenceMode::kRing; }
  // Whether the ranks' parts of a layer are computed by the host alone, whatever the device.
  bool needs_host() const {
    const bool cut = tensor.size > 1 && tensor.mode != collectives::TensorMode::k1D;
    return cut || expert > 1 || rings();
  }
  collectives::PipelineShape PipelineOf(int micro_batches) const {
    return {schedule, pipeline, micro_batches, chunks};
  }
  // As many as it needs if nobody says how many there are; at most some more than kRanksMax.
  int least_ranks() const;
};

// More ranks than any cluster has.
inline constexpr int kRanksMax = 1 << 16;

// INVALID_ARGUMENT naming the axis and what it takes: unknown axes and modes, an axis that is there
// twice, sizes that are no numbers from 1 to kRanksMax, ranks that make no grid, more than
// kRanksMax of them.
absl::StatusOr<MeshAxes> ParseMeshAxes(const std::string& text);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_AXES_H_
