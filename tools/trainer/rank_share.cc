#include "tools/trainer/rank_share.h"

#include <algorithm>

#include "tools/trainer/model_part.h"
#include "tools/trainer/recompute_choice.h"
#include "tools/trainer/tensor_share.h"
#include "tools/trainer/transformer.h"

namespace geminid::trainer {

RankShare ShareOf(const TrainOptions& options, const collectives::Mesh& mesh, int rank) {
  const auto stage = static_cast<size_t>(mesh.Coordinate(rank, kPipelineAxis));
  return {.part = SplitModel(options.model, options.parallel.pipeline)[stage],
          .batch = {.seed = options.seed,
                    .context = options.model.context,
                    .batch = options.batch,
                    .accumulate = static_cast<uint64_t>(options.zero.accumulate),
                    .rank = static_cast<uint64_t>(mesh.Coordinate(rank, kDataAxis)),
                    .world_size = static_cast<uint64_t>(mesh.SizeOf(kDataAxis)),
                    .piece = static_cast<uint64_t>(mesh.Coordinate(rank, kSequenceAxis)),
                    .pieces = static_cast<uint64_t>(mesh.SizeOf(kSequenceAxis)),
                    .zigzag = options.parallel.rings()}};
}

MicroBatchShape ShapeOfShare(const TrainOptions& options, int world_size) {
  const auto pieces = static_cast<uint64_t>(options.parallel.sequence);
  const auto stages = static_cast<uint64_t>(options.parallel.pipeline);
  const auto tensor = static_cast<uint64_t>(options.parallel.tensor.size);
  return {.sequences = options.batch * stages * pieces * tensor / static_cast<uint64_t>(world_size),
          .sequence_length = options.model.context / pieces};
}

ModelConfig LargestPart(const TrainOptions& options) {
  ModelConfig part = options.model;
  part.layers = 0;
  for (const ModelPart& stage : SplitModel(options.model, options.parallel.pipeline)) {
    part.layers = std::max(part.layers, stage.layers);
  }
  return part;
}

ModelConfig LayersInFlight(const TrainOptions& options) {
  ModelConfig layers = LargestPart(options);
  // 1F1B: of so many micro-batches at most has the first stage gone forward and not back.
  layers.layers *=
      static_cast<uint64_t>(std::min(options.parallel.pipeline, options.zero.accumulate));
  return layers;
}

uint64_t ParametersOfShare(const TrainOptions& options) {
  if (options.parallel.tensor.size == 1) return CountParameters(LargestPart(options));
  uint64_t most = 0;
  for (const ModelPart& stage : SplitModel(options.model, options.parallel.pipeline)) {
    most = std::max(most, TensorElements(options, stage));
  }
  return most;
}

uint64_t KeptBytesOfShare(const TrainOptions& options, int world_size) {
  const MicroBatchShape shape = ShapeOfShare(options, world_size);
  const ModelConfig layers = LayersInFlight(options);
  if (options.parallel.tensor.size > 1) return TensorKeptBytes(options, layers.layers, shape);
  return KeptBytes(layers, options.zero.data_type, shape);
}

uint64_t WorkspaceBytesOfShare(const TrainOptions& options, int world_size, size_t threads) {
  const zero::DataType type = options.zero.data_type;
  MicroBatchShape shape = ShapeOfShare(options, world_size);
  if (options.parallel.tensor.size > 1) {
    return TensorWorkspaceBytes(options, LayersInFlight(options).layers, shape);
  }
  const uint64_t bytes = WorkspaceBytesBound(LayersInFlight(options), type, shape, {}, threads);
  if (options.parallel.sequence == 1 || options.parallel.rings()) return bytes;
  // Beside it the scratch of a half layer that attends to whole sequences.
  ModelConfig half = options.model;
  half.layers = 0;
  shape.sequence_length = options.model.context;
  return bytes + WorkspaceBytesBound(half, type, shape, {}, threads);
}

uint64_t UnlimitedDeviceBytes(const TrainOptions& options, int world_size, size_t threads) {
  const uint64_t kept =
      options.recompute == Recompute::kOn ? 0 : KeptBytesOfShare(options, world_size);
  return WholeModelBytes(options) + kept + 2 * WorkspaceBytesOfShare(options, world_size, threads);
}

}  // namespace geminid::trainer
