#include "training/forecast/trainer_need.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/pages.h"
#include "client/zero/basics/layout.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/attention_parts.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/forecast.h"
#include "training/forecast/trainer_layout.h"
#include "training/models/parameters.h"

namespace geminid::forecast {
namespace {

// A layer and one of its operators.
using Place = std::pair<std::uint64_t, Operator>;

struct Chunks {
  std::uint64_t largest_operator_bytes = 0;  // of the chunks that one operator uses
  std::uint64_t all_bytes = 0;
  std::uint64_t elements = 0;  // padded
};

// The trainer has one expert of a layer at a time.
std::uint64_t TogetherOf(const Model& model, const Place& place, std::uint64_t bytes,
                         std::uint64_t largest_chunk) {
  if (model.mlps() <= 1 || place.second != Operator::kMlp) return bytes;
  return bytes / model.experts + largest_chunk;
}

// The shapes as the trainer gives them to the engine: each sublayer is a unit.
std::vector<zero::TensorShape> ShapesOf(const std::vector<Tensor>& tensors, zero::DataType type,
                                        bool whole_matrices) {
  std::vector<zero::TensorShape> shapes;
  std::map<Place, std::uint32_t> units;
  for (const Tensor& tensor : tensors) {
    zero::TensorShape shape = {.elements = tensor.elements(), .type = type};
    if (IsPartOfLayer(tensor.used_by)) {
      const auto number = static_cast<std::uint32_t>(units.size());
      shape.unit = units.emplace(Place(tensor.layer, tensor.used_by), number).first->second;
    }
    shape.whole = whole_matrices && IsLayerMatrix(tensor);
    shapes.push_back(shape);
  }
  return shapes;
}

Chunks PackedChunks(const Model& model, const TrainerNeed& need) {
  const std::vector<Tensor> tensors = Tensors(model);
  const zero::DataType type =
      need.element_bytes == sizeof(float) ? zero::DataType::kFloat32 : zero::DataType::kBFloat16;
  const std::vector<zero::TensorShape> shapes = ShapesOf(tensors, type, need.whole_matrices);
  const auto layout =
      zero::MakeLayout(shapes, {.world_size = static_cast<int>(need.sharing_ranks)});
  if (!layout.ok()) return {};
  Chunks chunks;
  std::uint64_t largest_chunk = 0;
  const auto bytes_of = [&](std::uint32_t chunk) {
    return base::RoundUpToPage(layout->chunks[chunk].bytes());
  };
  for (std::uint32_t chunk = 0; chunk < layout->chunks.size(); ++chunk) {
    chunks.all_bytes += bytes_of(chunk);
    chunks.elements += layout->chunks[chunk].elements;
    largest_chunk = std::max(largest_chunk, bytes_of(chunk));
  }
  std::map<Place, std::set<std::uint32_t>> used;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool in_layer = IsPartOfLayer(tensors[i].used_by);
    used[{in_layer ? tensors[i].layer : 0, tensors[i].used_by}].insert(layout->tensors[i].chunk);
    if (tensors[i].also_output) used[{0, Operator::kOutput}].insert(layout->tensors[i].chunk);
  }
  for (const auto& [place, its_chunks] : used) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t chunk : its_chunks) bytes += bytes_of(chunk);
    chunks.largest_operator_bytes =
        std::max(chunks.largest_operator_bytes, TogetherOf(model, place, bytes, largest_chunk));
  }
  return chunks;
}

// Bytes of optimizer state on the device: those of each element and, in small models, up to three
// quarters of as much again for the granules that updates write.
std::uint64_t StateBytes(const Chunks& chunks, const TrainerNeed& need) {
  const std::uint64_t bytes = need.state_bytes + need.state_bytes * 3 / 4;
  return need.state_on_device ? bytes * chunks.elements / need.sharing_ranks : 0;
}

// The bytes that a library takes for attention on a GPU, and for its test.
struct LibraryBytes {
  std::uint64_t in_a_step = 0;
  std::uint64_t in_its_test = 0;
};

LibraryBytes AttentionBytesOf(const WorkspaceShape& shape) {
  if (!shape.on_gpu || shape.element_bytes != kElementBytes) return {};
  const kernels::AttentionShape attention = {.batch = shape.batch.sequences,
                                             .sequence = shape.batch.sequence_length,
                                             .heads = shape.heads,
                                             .kv_heads = shape.kv_heads,
                                             .head_dim = shape.head_dim,
                                             .scale = 1.0F};
  const kernels::AttentionParts parts = kernels::PartsOfAttention(attention);
  if (parts.batch == 0) return {};
  const std::uint64_t in_a_step = parts.bytes + shape.batch.tokens() * shape.heads * sizeof(float);
  return {in_a_step, in_a_step + kernels::AttentionTestBytes(attention, parts)};
}

// A piece of a sequence may have all of the sequence's masked tokens.
std::uint64_t RowsWithTargets(const WorkspaceShape& shape) {
  const std::uint64_t tokens = shape.batch.tokens();
  if (shape.classifies) return shape.batch.sequences;
  if (!shape.masks) return tokens;
  const std::uint64_t whole =
      shape.whole_sequence > 0 ? shape.whole_sequence : shape.batch.sequence_length;
  return std::min(tokens, shape.batch.sequences * trainer::MaskedTokens(whole));
}

}  // namespace

absl::StatusOr<zero::Layout> TrainerLayout(const Model& model, const Optimizer& optimizer,
                                           std::uint64_t sharing_ranks) {
  const std::vector<Tensor> tensors = Tensors(model);
  const std::vector<bool> norms = NormsAmongTensors(model);
  const trainer::ModelParameters parameters = trainer::MakeParameters(model);
  std::vector<zero::TensorShape> shapes = ShapesOf(tensors, zero::DataType::kBFloat16, false);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (norms[i]) shapes[i].type = zero::DataType::kFloat32;
    shapes[i].unit = parameters.specs[i].unit;  // of experts each its own
    shapes[i].whole = optimizer.StepsWhole(tensors[i]);
  }
  return zero::MakeLayout(shapes, {.world_size = static_cast<int>(sharing_ranks)});
}

std::uint64_t TrainerWorkspaceBytes(const WorkspaceShape& shape) {
  const LibraryBytes library = AttentionBytesOf(shape);
  const std::uint64_t element = shape.element_bytes;
  const std::uint64_t tokens = shape.batch.tokens();
  const std::uint64_t hidden = shape.hidden;
  const std::uint64_t stream = tokens * hidden * element;
  const std::uint64_t queries = shape.heads * shape.head_dim;
  const std::uint64_t head_columns =
      shape.norms_heads ? queries
                        : std::max<std::uint64_t>(shape.attention_columns,
                                                  shape.head_dim * shape.heads / shape.kv_heads);
  // If all heads together are wider than the stream, so are queries and attended values.
  const std::uint64_t wide = std::max(queries, hidden);
  const std::uint64_t attention =
      8 * tokens * head_columns * element +
      kernels::AttentionWorkspaceBytes({.batch = shape.batch.sequences,
                                        .sequence = shape.batch.sequence_length,
                                        .heads = shape.heads,
                                        .kv_heads = shape.kv_heads,
                                        .head_dim = shape.head_dim,
                                        .scale = 1.0F},
                                       shape.threads) +
      library.in_a_step;
  const std::uint64_t mlp = 4 * tokens * shape.mlp_columns * element;
  // Logits, and for an expert's rows the input, and the gradients of output and input.
  const std::uint64_t routed = shape.experts > 0
                                   ? tokens * (shape.experts * (element + sizeof(float)) +
                                               hidden * (2 * element + sizeof(float)))
                                   : 0;
  const std::uint64_t rows = RowsWithTargets(shape);
  // There are copies of the rows that have targets, and the outputs of the layers of a head.
  const bool chooses = shape.masks || shape.classifies;
  const std::uint64_t head =
      chooses ? 6 * rows * hidden * element + 8 * (tokens + 2 * rows + 1) : 0;
  const std::uint64_t output =
      rows * base::RoundUp(shape.vocabulary, kLogitAlignment) * (element + sizeof(float)) + head;
  // If the CPU cannot multiply T, a matrix product works on fp32 copies of its three matrices, each
  // of which has two of the product's three dimensions.
  const auto copies = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    return sizeof(float) * (a * b + b * c + a * c);
  };
  const std::uint64_t product =
      std::max({copies(tokens, hidden, std::max(head_columns, wide)),
                copies(tokens, hidden, std::min(shape.mlp_columns, shape.intermediate)),
                copies(rows, hidden, shape.vocabulary)});
  // The patches stay. An image's rows are computed from them before there are inputs, and their
  // gradients when the inputs are gone.
  const std::uint64_t patches = tokens * shape.patch_elements * element;
  const std::uint64_t embedding =
      shape.patch_elements == 0
          ? 0
          : patches + 3 * stream + copies(tokens, hidden, shape.patch_elements);
  const std::uint64_t inputs = (shape.parallel_block ? 1 : 2) * shape.layers;
  const std::uint64_t step =
      patches + (inputs + 2) * stream + 2 * stream + 2 * tokens * (wide - hidden) * element +
      tokens * hidden * sizeof(float) + std::max({attention, mlp + routed, output}) + product;
  return std::max({step, embedding, library.in_its_test});
}

std::uint64_t TrainerDeviceBytes(const Model& model, const TrainerNeed& need) {
  const Chunks chunks = PackedChunks(model, need);
  // The sums of gradients over micro-batches lie beside the weights.
  const std::uint64_t copies = need.sums_gradients ? 3 : 2;
  const std::uint64_t bytes = need.workspace_bytes + (need.weights_stay ? chunks.all_bytes : 0) +
                              copies * chunks.largest_operator_bytes + StateBytes(chunks, need);
  return base::RoundUp(bytes, MemoryStep(bytes));
}

bool TrainerTrains(const Model& model) {
  // Not OPT-350m, whose norms come after the layers.
  const bool as_trained = model.last_norm() && model.table_columns() == model.hidden &&
                          model.classifies() == model.image.has_value();
  const bool by_type = model.name == Name(model.family) && model.traits().trains();
  return (by_type && as_trained) || FindTrainerModel(model.name) != nullptr;
}

WorkspaceShape WorkspaceShapeOf(const Model& model) {
  return {.layers = model.layers,
          .hidden = model.hidden,
          .heads = model.heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim(),
          .intermediate = model.intermediate,
          .vocabulary = model.logits(),
          .experts = model.routed() ? model.experts : 0,
          .norms_heads = model.norms_heads(),
          .parallel_block = model.parallel(),
          .masks = model.masks(),
          .classifies = model.classifies(),
          .patch_elements = model.image ? model.image->patch_elements() : 0};
}

}  // namespace geminid::forecast
