// Lists the meshes of a model on a cluster, and tells which of them the model can be partitioned
// for. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESHES_H_
#define GEMINID_TRAINING_MESHES_MESHES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "training/forecast/problem.h"
#include "training/meshes/mesh_spec.h"

namespace geminid::parallel {

// How a step is made on a mesh.
struct Setting {
  MeshSpec mesh;
  std::uint64_t micro_batches = 1;
  forecast::Activations activations = forecast::Activations::kRecompute;
  friend bool operator==(const Setting&, const Setting&) = default;
};

// All meshes of so many ranks, each once: every factorisation into pipeline x data x sequence x
// tensor, for each number of tensor ranks every grid that it makes, stages of whole layers also in
// ZBV, and where ranks share weights each of ZeRO's stages. In a fixed order.
std::vector<MeshSpec> MeshesOf(int ranks);

// Whether the model can be cut so, whatever the batch. INVALID_ARGUMENT naming the axis, what does
// not divide and by what; or for what cannot be cut at all: an encoder beside a decoder into
// stages; what is not a language model, or has a token table of another width, over tensor ranks;
// experts in 2D, 2.5D and 3D.
absl::Status CheckMesh(const forecast::Model& model, std::uint64_t sequence_length,
                       const MeshSpec& mesh);

// The same, and where a size of tensor or of sequence does not fit, the nearest that do. Slower.
absl::Status CheckMeshInWords(const forecast::Model& model, std::uint64_t sequence_length,
                              const MeshSpec& mesh);

// What of that is about stages, of which each has so many chunks of layers.
absl::Status CheckStages(int stages, int chunks, std::uint64_t layers);

// What is about backward passes in two halves, of which models with experts, layers that are cut
// over tensor ranks and pipelines of one stage have none; and that a step has micro-batches enough.
absl::Status CheckInHalves(const forecast::Model& model, const MeshSpec& mesh);
absl::Status CheckMicroBatchesInHalves(std::uint64_t micro_batches);

// Whether the experts of a layer can be spread over so many ranks; else with the nearest that do.
absl::Status CheckSpread(int ranks, std::uint64_t experts);

// `why` a size of an axis does not fit, with the nearest below and above that do, named as they are
// written.
absl::Status WithNearestSizes(const absl::Status& why, int size, absl::FunctionRef<bool(int)> fits,
                              absl::FunctionRef<std::string(int)> name);

// What of CheckMesh is about layers cut over tensor ranks, whatever the grid.
absl::Status CheckLayersCanBeCut(const forecast::Model& model);

// What ranks of one grid and one part of a sequence work on together: job.batch of all job.ranks,
// cut over data and micro-batches. INVALID_ARGUMENT where that is no whole number of sequences, or
// fewer than the grid needs so that attention has whole sequences; and for micro-batches that are
// too few for the schedule, or more than it is made for.
absl::StatusOr<forecast::Batch> MicroBatchOf(const forecast::Job& job, const Setting& setting);

// More are not tried.
inline constexpr std::uint64_t kMicroBatchesMax = 4096;

// The settings of a mesh: every number of micro-batches that the batch allows, with activations
// recomputed and kept; where plans need not be executable and there is no pipeline, planned instead
// of either. `micro_batches`, unless 0, and job.activations, where they are not planned, fix these.
std::vector<Setting> SettingsOf(const forecast::Job& job, const MeshSpec& mesh,
                                std::uint64_t micro_batches = 0);

// Of `meshes` the nearest to `mesh`: the fewest changes of an axis' size or of tensor's mode, then
// the least change by factors of two, then the first. `count` at most, the nearest first.
std::vector<MeshSpec> Nearest(const MeshSpec& mesh, const std::vector<MeshSpec>& meshes,
                              std::size_t count);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESHES_H_
