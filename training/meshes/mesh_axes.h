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
  bool automatic = false;  // nothing else is said
  PipelineAxis pipeline = {};
  TensorAxis tensor = {};  // of sequence=megatron:N too, which is tensor=1d-sequence:N
  SequenceMode sequence_mode = SequenceMode::kUlysses;
  int sequence = 1;
  int expert = 1;
  std::optional<int> data = {};  // unset: what the other axes leave of the ranks
  int zero = 3;
  bool zero_within_host = false;

  std::int64_t least_ranks() const;
};

// More ranks than any cluster has.
inline constexpr int kRanksMax = 1 << 16;

// INVALID_ARGUMENT naming the axis and what it takes: unknown axes and modes, an axis that is there
// twice, sizes that are no numbers from 1 to kRanksMax, ranks that make no grid, more than
// kRanksMax of them.
absl::StatusOr<MeshAxes> ParseMeshAxes(const std::string& text);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_AXES_H_
