// The partition of a run's model and batch over its ranks: --parallel.
//
// training/meshes/mesh_axes.h has its form; with auto, mesh_choice.h chooses the axes. The pipeline
// is the outermost axis, then come data and sequence. Tensor or expert, which communicate most, are
// innermost: consecutive ranks share layers.
#ifndef GEMINID_TRAINING_SETTINGS_PARALLEL_H_
#define GEMINID_TRAINING_SETTINGS_PARALLEL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/mesh.h"
#include "training/meshes/mesh_axes.h"
#include "training/meshes/mesh_spec.h"

namespace geminid::trainer {

struct TrainOptions;  // options.h

// Names of the mesh's axes.
inline constexpr char kPipelineAxis[] = "pipeline";
inline constexpr char kDataAxis[] = "data";
inline constexpr char kExpertAxis[] = "expert";  // if ranks share experts
inline constexpr char kSequenceAxis[] = "sequence";
inline constexpr char kTensorAxis[] = "tensor";

using Parallel = parallel::MeshAxes;
using SequenceMode = parallel::SequenceMode;

// INVALID_ARGUMENT as parallel::ParseMeshAxes, and for meshes that the trainer does not support or
// that have more ranks than a run can have.
absl::StatusOr<Parallel> ParseParallel(const std::string& text);

// The planner's description of it, for one data-parallel rank.
parallel::MeshSpec SpecOf(const Parallel& parallel);

// INVALID_ARGUMENT for options that a partitioned model does not support, and for a model that
// cannot be partitioned in this way. MakeMesh checks what depends on the number of ranks.
absl::Status CheckParallel(const TrainOptions& options);

// The part of CheckParallel that the planner checks, too: whether the model's sizes can be divided.
absl::Status CheckSizes(const TrainOptions& options);

// The places of the ranks in the mesh. INVALID_ARGUMENT if the axes do not fit the number of ranks;
// the message has the numbers that they fit.
absl::StatusOr<collectives::Mesh> MakeMesh(const Parallel& parallel, int world_size);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_PARALLEL_H_
