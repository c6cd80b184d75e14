// The partition of a run's model and batch over its ranks: --parallel.
//
// It is written as training/meshes/mesh_axes.h says; auto leaves the axes to mesh_choice.h. In the
// mesh the pipeline is outermost, then data, then sequence; tensor or expert, which talk most, are
// innermost: ranks that follow each other share layers.
#ifndef GEMINID_TRAINING_SETTINGS_PARALLEL_H_
#define GEMINID_TRAINING_SETTINGS_PARALLEL_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/mesh.h"
#include "training/meshes/mesh_axes.h"
#include "training/meshes/mesh_spec.h"
#include "training/nn/parallel/stages/schedule.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::trainer {

struct TrainOptions;  // options.h

// Names of the mesh's axes.
inline constexpr char kPipelineAxis[] = "pipeline";
inline constexpr char kDataAxis[] = "data";
inline constexpr char kExpertAxis[] = "expert";  // of meshes whose experts are spread
inline constexpr char kSequenceAxis[] = "sequence";
inline constexpr char kTensorAxis[] = "tensor";

using SequenceMode = parallel::SequenceMode;

struct Parallel {
  bool automatic = false;  // nothing else is known before all ranks are there
  int pipeline = 1;        // stages
  collectives::PipelineKind schedule = collectives::PipelineKind::k1F1B;
  int chunks = 1;    // parts of the model that each stage has
  int sequence = 1;  // parts that each sequence is cut into
  SequenceMode sequence_mode = SequenceMode::kUlysses;
  std::optional<int> data = {};      // unset: what the other axes leave of the ranks
  parallel::TensorAxis tensor = {};  // the ranks that each layer is cut over
  int expert = 1;                    // the ranks that the experts of each layer are spread over
  int zero = 3;                      // the stage: zero::Stage's number
  bool zero_within_host = false;     // weights come from other hosts once between updates

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
  // As many as it needs if nobody says how many there are.
  int least_ranks() const { return pipeline * sequence * tensor.size * expert * data.value_or(1); }
};

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
