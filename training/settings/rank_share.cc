#include "training/settings/rank_share.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/forecast/trainer_need.h"
#include "training/meshes/axes.h"
#include "training/meshes/stages.h"
#include "training/nn/layer_share.h"
#include "training/nn/parallel/stages/held_bytes.h"
#include "training/nn/parallel/tensor/tensor_layout.h"
#include "training/settings/accumulate_range.h"
#include "training/settings/tensor_share.h"
#include "training/transformer/share_loss.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

namespace {

// By stage.
std::vector<std::vector<ModelPart>> StagesOf(const TrainOptions& options) {
  const collectives::PipelineShape shape = options.parallel.PipelineOf(options.zero.accumulate);
  const std::vector<ModelPart> all = SplitModel(options.model, shape.stages * shape.parts);
  std::vector<std::vector<ModelPart>> stages(static_cast<size_t>(shape.stages));
  for (size_t position = 0; position < all.size(); ++position) {
    const int stage = collectives::PlaceAt(shape, static_cast<int>(position)).stage;
    stages[static_cast<size_t>(stage)].push_back(all[position]);
  }
  return stages;
}

bool IsOf(OfStage stage, size_t index) {
  return !stage.has_value() || static_cast<size_t>(*stage) == index;
}

bool InHalves(const TrainOptions& options) {
  return options.parallel.schedule == collectives::PipelineKind::kZeroBubbleV;
}

// Of backward passes in two halves: the inputs of half layers, or all activations, and what is left
// for later.
uint64_t HeldInHalves(const TrainOptions& options, const MicroBatchShape& shape, bool keeps,
                      OfStage stage) {
  const collectives::PipelineShape pipeline = options.parallel.PipelineOf(options.zero.accumulate);
  const auto schedule = collectives::MakePipelineSchedule(pipeline);
  if (!schedule.ok()) return 0;  // refused before
  const zero::DataType type = options.zero.data_type;
  const uint64_t stream = shape.tokens() * options.model.hidden * zero::SizeOf(type);
  const std::vector<std::vector<ModelPart>> stages = StagesOf(options);
  uint64_t most = 0;
  const uint64_t inputs = options.model.parallel() ? 1 : 2;  // of a layer, that it keeps
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!IsOf(stage, i)) continue;
    std::vector<collectives::PartBytes> parts;
    for (const ModelPart& part : stages[i]) {
      ModelConfig layers = options.model;
      layers.layers = part.layers;
      // The device may be a GPU, where rows of logits are longer.
      parts.push_back(
          {.forward = (inputs * part.layers + (part.outputs ? 1 : 0)) * stream +
                      (keeps ? KeptBytes(layers, type, shape) : 0),
           .later = LaterBytes(options.model, type, part, shape, forecast::kLogitAlignment)});
    }
    most = std::max(most, collectives::MostHeldBytes((*schedule)[i], parts));
  }
  return most;
}

// What attention takes beside whole sequences where ranks share them, for `model`, a rank's.
uint64_t PiecesBytes(const TrainOptions& options, ModelConfig model, MicroBatchShape shape,
                     const Tiling& tiling, size_t threads) {
  const zero::DataType type = options.zero.data_type;
  if (options.parallel.sequence == 1) return 0;
  const auto pieces = static_cast<uint64_t>(options.parallel.sequence);
  if (options.parallel.rings()) {
    return RingBytesBound(model, type, shape, pieces, tiling, threads);
  }
  const uint64_t swaps = UlyssesExchangeBytesBound(model, type, shape, pieces, tiling);
  // Beside it the scratch of a half layer that attends to whole sequences.
  model.layers = 0;
  shape.sequence_length = options.model.context;
  return swaps + WorkspaceBytesBound(model, type, shape, tiling, threads);
}

// The workspace of a rank with a shard of each layer (training/nn/layer_share.h).
uint64_t ShareWorkspaceBytes(const TrainOptions& options, const ModelConfig& layers,
                             const MicroBatchShape& shape, size_t threads) {
  const zero::DataType type = options.zero.data_type;
  const int ranks = options.parallel.tensor.size;
  ModelConfig share = ConfigOfShare(layers, ranks);
  share.vocabulary = collectives::PaddedVocabulary(GridOf(options.parallel), layers.vocabulary) /
                     static_cast<uint64_t>(ranks);
  // Beside it logits that are rounded, what rows have behind their words, and numbers of tokens.
  constexpr uint64_t kOfToken = 8 * sizeof(float);
  const uint64_t width = LogitsWidth(share.vocabulary);
  const uint64_t output = zero::SizeOf(type) * width + sizeof(float) * (width - share.vocabulary);
  const Tiling tiling = Tiling::Of(share, options.wants_gpu);
  return WorkspaceBytesBound(share, type, shape, tiling, threads) +
         shape.tokens() * (output + kOfToken) + PiecesBytes(options, share, shape, tiling, threads);
}

// Padding and spares, which grow with the model up to some chunks. An arena is backed by memory
// page by page before a run begins: of a small model, more would be most of what its start takes.
uint64_t SpareBytes(uint64_t model_bytes) {
  constexpr uint64_t kLeast = uint64_t{4} << 20;
  constexpr uint64_t kMost = uint64_t{64} << 20;
  return std::min(kMost, kLeast + 2 * model_bytes);
}

// That some number of a range is possible; an empty range is.
absl::Status CheckSome(const TrainOptions& options, int least, int most) {
  absl::Status status;
  for (int ranks = least; ranks <= most; ++ranks) {
    status = CheckShares(options, ranks);
    if (status.ok()) return status;
  }
  return status;
}

absl::Status CheckShareRange(const TrainOptions& options) {
  if (!options.share) return absl::OkStatus();
  const RanksRange& range = *options.share;
  const absl::Status others = CheckSome(options, range.least + 1, range.most);
  if (others.ok()) return others;
  return absl::InvalidArgumentError(
      absl::StrCat("--ranks is ", range.least, ":", range.most, ", and of these numbers only ",
                   range.least, " is possible: ", std::string(others.message()), "; give --ranks ",
                   range.least, ", or a larger range"));
}

}  // namespace

RankShare ShareOf(const TrainOptions& options, const collectives::Mesh& mesh, int rank) {
  const auto stage = static_cast<size_t>(mesh.Coordinate(rank, kPipelineAxis));
  std::vector<ModelPart> parts = StagesOf(options)[stage];
  // Ranks that share experts have other sequences, as those that share data.
  int rank_of_data = mesh.Coordinate(rank, kDataAxis), data = mesh.SizeOf(kDataAxis);
  if (const int spread = options.parallel.expert; spread > 1) {
    const int place = mesh.Coordinate(rank, kExpertAxis);
    for (ModelPart& part : parts) {
      part.experts = options.model.experts / static_cast<uint64_t>(spread);
      part.first_expert = static_cast<uint64_t>(place) * part.experts;
    }
    rank_of_data = rank_of_data * spread + place;
    data *= spread;
  }
  return {.parts = std::move(parts),
          .batch = {.seed = options.seed,
                    .sampling = options.sampling,
                    .context = options.model.context,
                    .batch = options.batch,
                    .accumulate = SequencesPerStep(options) / options.batch,
                    .rank = static_cast<uint64_t>(rank_of_data),
                    .world_size = static_cast<uint64_t>(data),
                    .piece = static_cast<uint64_t>(mesh.Coordinate(rank, kSequenceAxis)),
                    .pieces = static_cast<uint64_t>(mesh.SizeOf(kSequenceAxis)),
                    .masking = options.model.masking,
                    .image = options.model.image,
                    .vocabulary = options.model.vocabulary,
                    .zigzag = options.parallel.rings()}};
}

std::vector<ModelPart> SplitModel(const ModelConfig& config, int stages) {
  const double output_layers = OutputFlopsPerToken(config) / LayerFlopsPerToken(config);
  return parallel::SplitLayers(config.layers, output_layers, stages);
}

MicroBatchShape ShapeOfShare(const TrainOptions& options, int world_size) {
  const auto pieces = static_cast<uint64_t>(options.parallel.sequence);
  const auto stages = static_cast<uint64_t>(options.parallel.pipeline);
  const auto tensor = static_cast<uint64_t>(options.parallel.tensor.size);
  return {.sequences = options.batch * stages * pieces * tensor / static_cast<uint64_t>(world_size),
          .sequence_length = options.model.context / pieces};
}

ModelConfig LargestPart(const TrainOptions& options, OfStage stage) {
  ModelConfig part = options.model;
  part.layers = 0;
  const std::vector<std::vector<ModelPart>> stages = StagesOf(options);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!IsOf(stage, i)) continue;
    uint64_t layers = 0;
    for (const ModelPart& one : stages[i]) layers += one.layers;
    part.layers = std::max(part.layers, layers);
  }
  part.experts /= static_cast<uint64_t>(options.parallel.expert);
  return part;
}

ModelConfig LayersInFlight(const TrainOptions& options, OfStage stage) {
  ModelConfig layers = options.model;
  layers.layers = 0;
  const collectives::PipelineShape shape = options.parallel.PipelineOf(options.zero.accumulate);
  const std::vector<std::vector<ModelPart>> stages = StagesOf(options);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!IsOf(stage, i)) continue;
    for (const ModelPart& part : stages[i]) layers.layers = std::max(layers.layers, part.layers);
  }
  // The first stage has gone forward most often without having gone back.
  layers.layers *= static_cast<uint64_t>(collectives::MostInFlight(shape, stage.value_or(0)));
  return layers;
}

Tiling TilingOf(const TrainOptions& options) {
  return Tiling::Of(options.model, options.wants_gpu);
}

uint64_t ParametersOfShare(const TrainOptions& options, OfStage stage) {
  if (options.parallel.tensor.size == 1) return CountParameters(LargestPart(options, stage));
  const std::vector<ModelPart> stages = SplitModel(options.model, options.parallel.pipeline);
  uint64_t most = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (IsOf(stage, i)) most = std::max(most, TensorElements(options, stages[i]));
  }
  return most;
}

uint64_t KeptBytesOfShare(const TrainOptions& options, int world_size, OfStage stage) {
  const MicroBatchShape shape = ShapeOfShare(options, world_size);
  if (InHalves(options)) {
    return HeldInHalves(options, shape, /*keeps=*/true, stage) -
           HeldInHalves(options, shape, /*keeps=*/false, stage);
  }
  const ModelConfig layers = LayersInFlight(options, stage);
  if (options.parallel.has_grid()) return TensorKeptBytes(options, layers.layers, shape);
  return KeptBytes(ConfigOfShare(layers, options.parallel.tensor.size), options.zero.data_type,
                   shape);
}

uint64_t WorkspaceBytesOfShare(const TrainOptions& options, int world_size, size_t threads,
                               OfStage stage) {
  const zero::DataType type = options.zero.data_type;
  const MicroBatchShape shape = ShapeOfShare(options, world_size);
  ModelConfig layers = LayersInFlight(options, stage);
  if (options.parallel.has_grid()) {
    return TensorWorkspaceBytes(options, layers.layers, shape, threads);
  }
  if (options.parallel.tensor.size > 1) {
    return ShareWorkspaceBytes(options, layers, shape, threads);
  }
  const Tiling tiling = TilingOf(options);
  if (InHalves(options)) layers.layers = 0;
  uint64_t bytes = WorkspaceBytesBound(layers, type, shape, tiling, threads);
  if (InHalves(options)) bytes += HeldInHalves(options, shape, /*keeps=*/false, stage);
  if (options.parallel.expert > 1) {
    // Beside it the scratch of an expert that computes the tokens of all ranks.
    ModelConfig half = options.model;
    half.layers = 0;
    MicroBatchShape all = shape;
    all.sequences *= static_cast<size_t>(options.parallel.expert);
    bytes += WorkspaceBytesBound(half, type, all, tiling, threads);
  }
  return bytes + PiecesBytes(options, options.model, shape, tiling, threads);
}

std::vector<uint64_t> ItemBytesOfShare(const TrainOptions& options, int world_size) {
  const Parallel& parallel = options.parallel;
  if (parallel.pipeline > 1 || parallel.expert > 1) return {};
  const MicroBatchShape shape = ShapeOfShare(options, world_size);
  if (options.parallel.has_grid()) return TensorItemBytes(options, shape);
  return MakeTransformer(ConfigOfShare(options.model, parallel.tensor.size), options.zero.data_type,
                         TilingOf(options))
      ->ItemBytes(shape);
}

uint64_t InputBytesOfShare(const TrainOptions& options, int world_size) {
  const MicroBatchShape shape = ShapeOfShare(options, world_size);
  if (options.parallel.has_grid()) return TensorStreamBytes(options, shape);
  return shape.tokens() * options.model.hidden * zero::SizeOf(options.zero.data_type);
}

uint64_t StateBytesPerParameter(const TrainOptions& options) {
  constexpr uint64_t kMasterBytes = 4;
  constexpr uint64_t kArraysMax = 2;
  return kMasterBytes + kArraysMax * zero::SizeOf(options.zero.state_type);
}

uint64_t WholeModelBytes(const TrainOptions& options, OfStage stage) {
  // Per parameter: its state, a gathered weight, its gradient, and sums of gradients in fp32 when
  // there are several micro-batches, with a place to land but in ZeRO's first stage.
  const uint64_t element = zero::SizeOf(options.zero.data_type);
  const uint64_t landing = options.zero.stage == zero::Stage::kState ? 0 : element;
  const uint64_t per_parameter = StateBytesPerParameter(options) + 2 * element +
                                 (options.zero.accumulate > 1 ? sizeof(float) + landing : 0);
  const uint64_t model = ParametersOfShare(options, stage) * per_parameter;
  return model + model / 4 + SpareBytes(model);
}

uint64_t UnlimitedDeviceBytes(const TrainOptions& options, int world_size, size_t threads,
                              OfStage stage) {
  const uint64_t kept = options.activations == Activations::kRecompute
                            ? 0
                            : KeptBytesOfShare(options, world_size, stage);
  return WholeModelBytes(options, stage) + kept +
         2 * WorkspaceBytesOfShare(options, world_size, threads, stage);
}

absl::Status CheckShares(const TrainOptions& options, int ranks) {
  GEMINID_RETURN_IF_ERROR(CheckAccumulateRange(options, ranks));
  if (options.parallel.automatic) return absl::OkStatus();  // what is chosen fits
  GEMINID_ASSIGN_OR_RETURN(const collectives::Mesh mesh, MakeMesh(options.parallel, ranks));
  const int data = mesh.SizeOf(kDataAxis);
  const auto shares = static_cast<uint64_t>(data * options.parallel.expert);
  GEMINID_RETURN_IF_ERROR(CheckBatchRange(options, shares));
  GEMINID_RETURN_IF_ERROR(CheckBatch(options.batch, shares));
  return CheckTensorBatch(options, data);
}

const char* FlagOfOtherRanks(const TrainOptions& options) {
  if (options.share) return "--ranks MIN:MAX";
  if (options.min_ranks) return "--min-ranks";
  return options.max_ranks ? "--max-ranks" : nullptr;
}

int MostRanksOf(const TrainOptions& options, int ranks) {
  const int shared = options.share ? options.share->most : ranks;
  return std::max({ranks, shared, options.max_ranks.value_or(ranks)});
}

absl::Status CheckRankLimits(const TrainOptions& options, int ranks) {
  const char* const flag = FlagOfOtherRanks(options);
  if (options.zero.state_disk.endurance_bytes > 0 && flag != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--state-disk-endurance limits what each rank writes, and new ranks would "
                     "count from 0; leave it out, or ",
                     flag));
  }
  if (options.min_ranks.value_or(ranks) > ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--min-ranks is ", *options.min_ranks,
                                                   ", and the run begins with ", ranks,
                                                   "; give at most that"));
  }
  if (options.max_ranks.value_or(ranks) < ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--max-ranks is ", *options.max_ranks,
                                                   ", and the run begins with ", ranks,
                                                   "; give at least that"));
  }
  GEMINID_RETURN_IF_ERROR(CheckShareRange(options));
  const absl::Status fewer = CheckSome(options, options.min_ranks.value_or(ranks), ranks - 1);
  if (fewer.ok()) return fewer;
  return absl::InvalidArgumentError(
      absl::StrCat("--min-ranks is ", *options.min_ranks, ", and no number of ranks from that to ",
                   ranks - 1, " is possible: ", std::string(fewer.message()),
                   "; leave --min-ranks out, or give a smaller one"));
}

}  // namespace geminid::trainer
