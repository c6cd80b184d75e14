#include "training/meshes/meshes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"
#include "training/meshes/mesh_rank_work.h"

namespace geminid::parallel {
namespace {

using collectives::LinearRole;
using collectives::PipelineKind;
using collectives::TensorGrid;
using collectives::TensorMode;
using forecast::Activations;
using forecast::Job;
using forecast::Model;
using forecast::Operator;

// What making a ZBV schedule costs grows with stages^2 x micro-batches: seconds for so many.
constexpr std::uint64_t kScheduleSizeMax = 1 << 14;

std::vector<int> DivisorsOf(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

struct Grid {
  TensorMode mode = TensorMode::k1D;
  int depth = 1;
};
// 2.5D of one depth is 2D, and all modes of one rank are the same.
std::vector<Grid> GridsOf(int ranks) {
  if (ranks == 1) return {{}};
  std::vector<Grid> grids = {{TensorMode::k1D}, {TensorMode::k1DSequence}};
  const auto add = [&](TensorMode mode, int depth) {
    const auto grid = TensorGrid::Make(mode, ranks, depth);
    if (grid.ok() && grid->side() > 1) grids.push_back({mode, depth});
  };
  add(TensorMode::k2D, 1);
  for (const int depth : DivisorsOf(ranks)) {
    if (depth > 1) add(TensorMode::k25D, depth);
  }
  add(TensorMode::k3D, 1);
  return grids;
}

absl::Status CheckDivides(const std::string& axis, std::uint64_t parts, const char* what,
                          std::uint64_t size) {
  if (size % parts == 0) return absl::OkStatus();
  return RefuseParallel(
      absl::StrCat(axis, " must divide the model's ", size, " ", what, " by ", parts));
}

// In each of ZeRO's stages, which are the same for ranks that share nothing.
void AddStages(MeshSpec mesh, std::vector<MeshSpec>* meshes) {
  for (const int zero : {3, 2, 1}) {
    mesh.zero = zero;
    meshes->push_back(mesh);
    if (mesh.sharing_ranks() == 1) return;
  }
}

// The mesh, and where its stages have whole layers, the same in ZBV.
void AddSchedules(MeshSpec mesh, std::vector<MeshSpec>* meshes) {
  AddStages(mesh, meshes);
  if (mesh.pipeline == 1 || mesh.tensor > 1) return;
  mesh.schedule = PipelineKind::kZeroBubbleV;
  AddStages(mesh, meshes);
}

// Products of `tokens` tokens, without anything that depends on how many there are.
absl::Status CheckLinears(const Model& model, const TensorGrid& grid) {
  const auto whole = static_cast<std::size_t>(grid.side()) * static_cast<std::size_t>(grid.side()) *
                     static_cast<std::size_t>(grid.depth());
  for (const Operator op : PartsOfLayer(model, 0)) {
    for (PartLinear linear : LinearsOf(model, op, whole)) {
      if (op == Operator::kMlp && linear.role == LinearRole::kFirst) {
        linear.shape.out = model.intermediate;  // each of the matrices of a gated MLP
      }
      const absl::Status blocks = BlocksOf(grid, linear.role, linear.shape, 0).status();
      if (!blocks.ok()) return RefuseParallel(std::string(blocks.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const Model& model, const MeshSpec& mesh) {
  if (mesh.tensor == 1) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(CheckLayersCanBeCut(model));
  const std::string axis = absl::StrCat("tensor=", collectives::Name(mesh.tensor_mode));
  const TensorGrid grid = GridOf(mesh);
  const bool line =
      mesh.tensor_mode == TensorMode::k1D || mesh.tensor_mode == TensorMode::k1DSequence;
  if (model.routed() && !line) {
    return RefuseParallel(absl::StrCat(axis, " does not shard experts; tensor=1d does"));
  }
  const auto side = static_cast<std::uint64_t>(grid.side());
  GEMINID_RETURN_IF_ERROR(CheckDivides(axis, side, "heads", model.heads));
  GEMINID_RETURN_IF_ERROR(CheckDivides(axis, side, "key/value heads", model.kv_heads));
  return CheckLinears(model, grid);
}

// What of CheckMesh is about sequences cut over ranks, beside the grid of the mesh.
absl::Status CheckSequence(const Model& model, std::uint64_t sequence_length,
                           const MeshSpec& mesh) {
  const auto parts = static_cast<std::uint64_t>(mesh.sequence);
  const auto side = static_cast<std::uint64_t>(mesh.tensor == 1 ? 1 : GridOf(mesh).side());
  const bool rings = mesh.sequence_mode == SequenceMode::kRing;
  const std::string axis = absl::StrCat("sequence=", Name(mesh.sequence_mode), ":", parts);
  if (parts > 1 && !rings) {
    const std::string beside = absl::StrCat(axis, side > 1 ? " beside tensor" : "");
    GEMINID_RETURN_IF_ERROR(CheckDivides(beside, parts * side, "heads", model.heads));
    GEMINID_RETURN_IF_ERROR(CheckDivides(beside, parts * side, "key/value heads", model.kv_heads));
  }
  const bool cuts_tokens = mesh.tensor > 1 && mesh.tensor_mode == TensorMode::k1DSequence;
  if (parts == 1 && !cuts_tokens) return absl::OkStatus();
  // A ring's ranks have two chunks of a sequence each.
  const std::uint64_t cuts = (parts > 1 && rings ? 2 : 1) * parts * (cuts_tokens ? side : 1);
  return CheckDivides(cuts_tokens ? "tensor=1d-sequence" : axis, cuts, "tokens of a sequence",
                      sequence_length);
}

// Whole sequences of attention: those of a micro-batch are cut like the rows of X.
std::uint64_t SequencesOfGrid(const MeshSpec& mesh) {
  const TensorGrid grid = GridOf(mesh);
  const auto side = static_cast<std::uint64_t>(grid.side());
  switch (grid.mode()) {
    case TensorMode::k2D:
    case TensorMode::k25D:
      return side * static_cast<std::uint64_t>(grid.depth());
    case TensorMode::k3D:
      return side * side;
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      break;
  }
  return 1;
}

struct Distance {
  int changes = 0;
  double factors = 0;
  friend auto operator<=>(const Distance&, const Distance&) = default;
};
Distance Between(const MeshSpec& a, const MeshSpec& b) {
  Distance distance;
  for (const auto& [x, y] : {std::pair{a.pipeline, b.pipeline}, std::pair{a.data, b.data},
                             std::pair{a.sequence, b.sequence}, std::pair{a.tensor, b.tensor},
                             std::pair{a.depth, b.depth}}) {
    if (x == y) continue;
    ++distance.changes;
    distance.factors += std::abs(std::log2(static_cast<double>(x) / y));
  }
  if (a.tensor_mode != b.tensor_mode) ++distance.changes;
  if (a.schedule != b.schedule) ++distance.changes;
  if (a.zero != b.zero) ++distance.changes;
  if (a.sequence_mode != b.sequence_mode) ++distance.changes;
  return distance;
}

}  // namespace

std::vector<MeshSpec> MeshesOf(int ranks) {
  std::vector<MeshSpec> meshes;
  for (const int pipeline : DivisorsOf(ranks)) {
    for (const int tensor : DivisorsOf(ranks / pipeline)) {
      for (const Grid& grid : GridsOf(tensor)) {
        const int shared = ranks / pipeline / tensor;
        for (const int sequence : DivisorsOf(shared)) {
          MeshSpec mesh = {.pipeline = pipeline,
                           .data = shared / sequence,
                           .sequence = sequence,
                           .tensor_mode = grid.mode,
                           .tensor = tensor,
                           .depth = grid.depth};
          AddSchedules(mesh, &meshes);
          if (sequence == 1) continue;
          mesh.sequence_mode = SequenceMode::kRing;
          AddSchedules(mesh, &meshes);
        }
      }
    }
  }
  return meshes;
}

absl::Status CheckLayersCanBeCut(const Model& model) {
  if (model.head() == forecast::Head::kLanguage && model.forecast_only.embedding_width == 0 &&
      !model.has_both()) {
    return absl::OkStatus();
  }
  return RefuseParallel(absl::StrCat(
      "tensor shards only language models of one stack whose token table is as wide as the model; ",
      model.name, " is not one; leave the axis out"));
}

absl::Status CheckStages(int stages, int chunks, std::uint64_t layers) {
  const std::uint64_t parts =
      static_cast<std::uint64_t>(stages) * static_cast<std::uint64_t>(chunks);
  if (parts <= layers) return absl::OkStatus();
  return RefuseParallel(absl::StrCat(
      "pipeline=", stages, " needs a layer for each ", chunks > 1 ? "chunk of each stage" : "stage",
      ", ", parts, " in all, and the model has ", layers, "; take fewer stages",
      chunks > 1 ? absl::StrCat(", or pipeline=", stages, " alone, with one chunk per stage")
                 : ""));
}

absl::Status CheckInHalves(const Model& model, const MeshSpec& mesh) {
  if (mesh.pipeline == 1) {
    return RefuseParallel("pipeline=zbv needs at least 2 stages; leave it out for one");
  }
  if (model.encodes()) {
    return RefuseParallel(
        "pipeline=zbv does not support encoders yet, whose backward pass is not split; take "
        "pipeline=N "
        "or pipeline=interleaved:N:chunks=V");
  }
  if (model.routed()) {
    return RefuseParallel(
        "pipeline=zbv does not support models with experts yet, whose backward pass is not split; "
        "take "
        "pipeline=N or pipeline=interleaved:N:chunks=V");
  }
  if (mesh.tensor > 1) {
    return RefuseParallel("pipeline=zbv does not work with tensor yet; give pipeline=N");
  }
  return absl::OkStatus();
}

absl::Status CheckMicroBatchesInHalves(std::uint64_t micro_batches) {
  if (micro_batches > 1) return absl::OkStatus();
  return RefuseParallel(
      "pipeline=zbv needs at least 2 micro-batches in a step; give --accumulate 2 or more");
}

absl::Status CheckSpread(int ranks, std::uint64_t experts) {
  const auto fits = [&](int size) { return experts % static_cast<std::uint64_t>(size) == 0; };
  if (fits(ranks)) return absl::OkStatus();
  return WithNearestSizes(CheckDivides(absl::StrCat("expert=", ranks),
                                       static_cast<std::uint64_t>(ranks), "experts", experts),
                          ranks, fits, [](int size) { return absl::StrCat("expert=", size); });
}

absl::Status WithNearestSizes(const absl::Status& why, int size, absl::FunctionRef<bool(int)> fits,
                              absl::FunctionRef<std::string(int)> name) {
  constexpr int kTimesTried = 4;
  int below = size - 1, above = size + 1;
  while (below > 1 && !fits(below)) --below;
  while (above <= kTimesTried * size && !fits(above)) ++above;
  std::vector<std::string> names;
  if (below > 1) names.push_back(name(below));
  if (above <= kTimesTried * size) names.push_back(name(above));
  return absl::InvalidArgumentError(absl::StrCat(
      why.message(), names.empty()
                         ? "; no size near it fits: leave the axis out"
                         : absl::StrCat(names.size() == 1 ? "; the nearest size that fits: "
                                                          : "; the nearest sizes that fit: ",
                                        absl::StrJoin(names, " and "))));
}

absl::Status CheckMesh(const Model& model, std::uint64_t sequence_length, const MeshSpec& mesh) {
  GEMINID_RETURN_IF_ERROR(CheckStages(mesh.pipeline, mesh.chunks(), model.layers));
  if (mesh.in_halves()) GEMINID_RETURN_IF_ERROR(CheckInHalves(model, mesh));
  if (mesh.pipeline > 1 && model.has_both()) {
    return RefuseParallel(absl::StrCat("pipeline does not support ", model.name,
                                       ", which has an encoder and a decoder; leave the axis out"));
  }
  GEMINID_RETURN_IF_ERROR(CheckTensor(model, mesh));
  return CheckSequence(model, sequence_length, mesh);
}

absl::Status CheckMeshInWords(const Model& model, std::uint64_t sequence_length,
                              const MeshSpec& mesh) {
  absl::Status status = CheckMesh(model, sequence_length, mesh);
  const bool sized =
      mesh.pipeline == 1 || (CheckStages(mesh.pipeline, mesh.chunks(), model.layers).ok() &&
                             (!mesh.in_halves() || CheckInHalves(model, mesh).ok()));
  if (status.ok() || !sized || (mesh.pipeline > 1 && model.has_both())) return status;
  const bool of_tensor = !CheckTensor(model, mesh).ok() || mesh.sequence == 1;
  if (of_tensor && !CheckLayersCanBeCut(model).ok()) return status;
  const auto with = [&](int size) {
    MeshSpec other = mesh;
    (of_tensor ? other.tensor : other.sequence) = size;
    return other;
  };
  const auto fits = [&](int size) {
    const MeshSpec other = with(size);
    return TensorGrid::Make(other.tensor_mode, other.tensor, other.depth).ok() &&
           CheckMesh(model, sequence_length, other).ok();
  };
  return WithNearestSizes(status, of_tensor ? mesh.tensor : mesh.sequence, fits, [&](int size) {
    MeshSpec alone = with(size);
    alone.pipeline = alone.data = 1;
    alone.schedule = PipelineKind::k1F1B;
    alone.zero = MeshSpec{}.zero;
    alone.within_host = false;
    (of_tensor ? alone.sequence : alone.tensor) = 1;
    return ToString(alone);
  });
}

absl::StatusOr<forecast::Batch> MicroBatchOf(const Job& job, const Setting& setting) {
  if (setting.mesh.in_halves()) {
    GEMINID_RETURN_IF_ERROR(CheckMicroBatchesInHalves(setting.micro_batches));
    const auto stages = static_cast<std::uint64_t>(setting.mesh.pipeline);
    const std::uint64_t most = kScheduleSizeMax / (stages * stages);
    if (setting.micro_batches > most) {
      return RefuseParallel(absl::StrCat(ToString(setting.mesh), " is planned with at most ", most,
                                         " micro-batches, and there are ", setting.micro_batches,
                                         "; give fewer, or pipeline=", stages));
    }
  }
  const std::uint64_t all = job.batch.sequences * job.ranks;
  const std::uint64_t pieces =
      static_cast<std::uint64_t>(setting.mesh.data) * setting.micro_batches;
  if (all % pieces != 0) {
    return RefuseParallel(absl::StrCat(
        "the ", all, " sequences of a step are not divisible by data=", setting.mesh.data, " x ",
        setting.micro_batches, " micro-batches; change --batch or --accumulate"));
  }
  const std::uint64_t least = SequencesOfGrid(setting.mesh);
  const std::uint64_t sequences = all / pieces;
  if (sequences % least != 0) {
    return RefuseParallel(absl::StrCat("a micro-batch has ", sequences, " sequences; ",
                                       ToString(setting.mesh), " needs a multiple of ", least,
                                       ", so that attention has whole sequences; change --batch or "
                                       "--accumulate"));
  }
  return forecast::Batch{.sequences = sequences, .sequence_length = job.batch.sequence_length};
}

std::vector<Setting> SettingsOf(const Job& job, const MeshSpec& mesh, std::uint64_t micro_batches) {
  std::vector<Activations> modes = {Activations::kRecompute, Activations::kKeep};
  if (job.activations) modes = {*job.activations};
  const std::uint64_t all = job.batch.sequences * job.ranks;
  std::vector<Setting> settings;
  const auto data = static_cast<std::uint64_t>(mesh.data);
  for (std::uint64_t count = 1; count <= std::min(all / data, kMicroBatchesMax); ++count) {
    if (micro_batches != 0 && count != micro_batches) continue;
    if (all % (data * count) != 0) continue;
    if (!MicroBatchOf(job, {.mesh = mesh, .micro_batches = count}).ok()) continue;
    for (const Activations mode : modes) {
      settings.push_back({.mesh = mesh, .micro_batches = count, .activations = mode});
    }
  }
  return settings;
}

std::vector<MeshSpec> Nearest(const MeshSpec& mesh, const std::vector<MeshSpec>& meshes,
                              std::size_t count) {
  std::vector<MeshSpec> nearest = meshes;
  std::stable_sort(nearest.begin(), nearest.end(), [&](const MeshSpec& a, const MeshSpec& b) {
    return Between(mesh, a) < Between(mesh, b);
  });
  nearest.resize(std::min(count, nearest.size()));
  return nearest;
}

}  // namespace geminid::parallel
