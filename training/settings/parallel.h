// The partition of a run's model and batch over its ranks: --parallel.
//
// It is written as training/meshes/mesh_axes.h says; auto leaves the axes to mesh_choice.h. In the
// mesh the pipeline is outermost, then data, then sequence; tensor or expert, which talk most, are
// innermost: ranks that follow each other share layers.
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
inline constexpr char kExpertAxis[] = "expert";  // of meshes whose experts are spread
inline constexpr char kSequenceAxis[] = "sequence";
inline constexpr char kTensorAxis[] = "tensor";

using Parallel = parallel::MeshAxes;
using SequenceMode = parallel::SequenceMode;

// INVALID_ARGUMENT as parallel::ParseMeshAxes, and for what is not trained yet or has more ranks
// than a run.
absl::StatusOr<Parallel> ParseParallel(const std::string& text);

// What the planner knows of it, for one rank of data.
parallel::MeshSpec SpecOf(const Parallel& parallel);

// INVALID_ARGUMENT for what a run with a cut model cannot do, and for a model that cannot be cut
// so. What depends on the number of ranks, MakeMesh finds.
absl::Status CheckParallel(const TrainOptions& options);

// What of that the planner would say, too: whether the model can be cut into such pieces.
absl::Status CheckSizes(const TrainOptions& options);

// The ranks' places. INVALID_ARGUMENT for a number of ranks that the axes do not fit, with those
// that they would.
absl::StatusOr<collectives::Mesh> MakeMesh(const Parallel& parallel, int world_size);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_PARALLEL_H_
