// Lists the meshes of a cluster, and checks which of them suit a model. Pure.
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

// A mesh, and how a step runs on it.
struct Setting {
  MeshSpec mesh;
  std::uint64_t micro_batches = 1;
  forecast::Activations activations = forecast::Activations::kRecompute;
  friend bool operator==(const Setting&, const Setting&) = default;
};

// All meshes of so many ranks, each once, in a fixed order: every factorisation into pipeline x
// data x sequence x tensor, with every grid of the tensor ranks, pipelines in 1F1B and ZBV, and
// every ZeRO stage if ranks share weights. ZBV only with whole layers.
std::vector<MeshSpec> MeshesOf(int ranks);

// Whether the model can be partitioned for the mesh, with any batch. INVALID_ARGUMENT names the
// axis and the sizes that do not divide. Also refused: stages of an encoder-decoder model; tensor
// ranks for anything but a language model, or with a token table of another width; experts in 2D,
// 2.5D and 3D.
absl::Status CheckMesh(const forecast::Model& model, std::uint64_t sequence_length,
                       const MeshSpec& mesh);

// The same. If a size of tensor or sequence does not fit, the message has the nearest that do.
// Slower.
absl::Status CheckMeshInWords(const forecast::Model& model, std::uint64_t sequence_length,
                              const MeshSpec& mesh);

// The part of CheckMesh about stages with so many chunks of layers each.
absl::Status CheckStages(int stages, int chunks, std::uint64_t layers);

// The part of CheckMesh about ZBV: models with experts, tensor-parallel layers and pipelines of one
// stage have no backward passes in two halves. The second checks that a step has enough
// micro-batches.
absl::Status CheckInHalves(const forecast::Model& model, const MeshSpec& mesh);
absl::Status CheckMicroBatchesInHalves(std::uint64_t micro_batches);

// Whether so many ranks can share the experts of a layer. The error has the nearest numbers that
// do.
absl::Status CheckSpread(int ranks, std::uint64_t experts);

// Adds to `why`, which says that a size of an axis does not fit, the nearest sizes below and above
// that do, as people write them.
absl::Status WithNearestSizes(const absl::Status& why, int size, absl::FunctionRef<bool(int)> fits,
                              absl::FunctionRef<std::string(int)> name);

// The part of CheckMesh about tensor-parallel layers, for any grid.
absl::Status CheckLayersCanBeCut(const forecast::Model& model);

// The micro-batch of one data-parallel rank: job.batch of all job.ranks, divided by data and by the
// number of micro-batches. INVALID_ARGUMENT if that is no whole number of sequences, or fewer than
// the grid needs for attention over whole sequences. Also if the schedule needs more micro-batches
// or supports fewer.
absl::StatusOr<forecast::Batch> MicroBatchOf(const forecast::Job& job, const Setting& setting);

// The most micro-batches that are tried.
inline constexpr std::uint64_t kMicroBatchesMax = 4096;

// The settings of a mesh: every number of micro-batches that the batch allows, with activations
// recomputed and kept. `micro_batches` other than 0 and job.activations fix theirs.
std::vector<Setting> SettingsOf(const forecast::Job& job, const MeshSpec& mesh,
                                std::uint64_t micro_batches = 0);

// At most `count` of `meshes`, the nearest to `mesh` first: by the number of changed sizes and
// modes, then by the factors of two of these changes, then by their order.
std::vector<MeshSpec> Nearest(const MeshSpec& mesh, const std::vector<MeshSpec>& meshes,
                              std::size_t count);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESHES_H_
