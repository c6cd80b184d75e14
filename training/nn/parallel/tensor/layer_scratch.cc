#include "training/nn/parallel/tensor/layer_scratch.h"

#include <algorithm>
#include <cmath>

#include "kernels/model/embedding/embedding.h"
#include "kernels/model/normalisation/norm_part.h"
#include "training/nn/parallel/tensor/fused_outputs.h"
#include "training/nn/parallel/tensor/local_products.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {
namespace {

constexpr int kAnyRank = 0;  // blocks have the same size on each rank

size_t Bytes(size_t elements) { return sizeof(float) * elements; }

// The shape of one product on a rank.
LinearShape PartOf(const TensorGrid& grid, const LinearOptions& options,
                   const LinearBlocks& blocks) {
  const size_t in = blocks.x.columns.count, out = blocks.y.columns.count;
  switch (grid.mode()) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return {options.shape.tokens, in, out};
    case TensorMode::k2D:
    case TensorMode::k25D:
      return {blocks.x.rows.count, in, out};
    case TensorMode::k3D:
      return {blocks.x.rows.count * static_cast<size_t>(grid.side()), in, out};
  }
  return {};
}

// What fp32 results take until they are rounded; nothing where they are fp32 in their place.
size_t RoundedBytes(size_t elements, const ScratchBy& by) {
  return by.element == sizeof(float) ? 0 : Bytes(elements);
}

ProductBytes ProductsOf(const LinearShape& shape, const ScratchBy& by) {
  return by.element == sizeof(float) ? ProductBytesOf<float>(shape, by.threads)
                                     : ProductBytesOf<kernels::BFloat16>(shape, by.threads);
}

// The two layers of a pair.
struct PairBytes {
  ScratchBytes first, second;
  size_t given = 0;  // elements of what the first layer gives
  size_t taken = 0;  // of what the second one takes
};
PairBytes PairOf(const TensorGrid& grid, const LinearOptions& first, const LinearOptions& second,
                 const ScratchBy& by) {
  return {.first = ScratchOf(grid, first, by),
          .second = ScratchOf(grid, second, by),
          .given = BlocksOf(grid, first.role, first.shape, kAnyRank)->y.elements(),
          .taken = BlocksOf(grid, second.role, second.shape, kAnyRank)->x.elements()};
}

}  // namespace

ScratchBytes BlocksScratchOf(const TensorGrid& grid, const LinearOptions& options, size_t element) {
  const LinearBlocks blocks = *BlocksOf(grid, options.role, options.shape, kAnyRank);
  const LinearShape part = PartOf(grid, options, blocks);
  const size_t x = part.tokens * part.in, w = part.out * part.in, y = part.tokens * part.out;
  switch (grid.mode()) {
    case TensorMode::k1D:
      return {};  // its layers are not of this library
    case TensorMode::k1DSequence:
      if (options.role == LinearRole::kSecond)
        return {.forward = Bytes(y), .backward = element * y};
      return {.forward = element * x, .backward = element * x + Bytes(x)};
    case TensorMode::k2D:
    case TensorMode::k25D: {
      const size_t one = blocks.x.elements(), both = 2 * (one + blocks.w.elements());
      const size_t bias = Bytes(options.bias ? part.out : 0);
      return {.forward = element * both + bias, .backward = element * one + Bytes(both) + bias};
    }
    case TensorMode::k3D:
      return {.forward = element * (x + w) + Bytes(y),
              .backward = element * (x + y) + Bytes(x + w)};
  }
  return {};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const LinearOptions& options, const ScratchBy& by) {
  const LinearBlocks blocks = *BlocksOf(grid, options.role, options.shape, kAnyRank);
  const LinearShape part = PartOf(grid, options, blocks);
  const ScratchBytes room = BlocksScratchOf(grid, options, by.element);
  const ProductBytes products = ProductsOf(part, by);
  const size_t bias = options.bias ? products.backward_bias : 0;
  return {.forward = room.forward + products.forward,
          .backward =
              room.backward + std::max({products.backward_input, products.backward_weight, bias})};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const MlpOptions& options, const ScratchBy& by) {
  const size_t sections = options.activation == Activation::kSwiglu ? 2 : 1;
  const LinearOptions one = {.role = LinearRole::kFirst,
                             .shape = {options.tokens, options.hidden, sections * options.inner},
                             .bias = options.bias};
  const LinearOptions two = {.role = LinearRole::kSecond,
                             .shape = {options.tokens, options.inner, options.hidden},
                             .bias = options.bias};
  const PairBytes pair = PairOf(grid, one, two, by);
  const size_t inner = by.element * pair.taken;
  return {.forward = std::max(RoundedBytes(pair.given, by) + pair.first.forward,
                              inner + pair.second.forward),
          .backward = std::max(inner, by.element * pair.given) +
                      std::max(inner + RoundedBytes(pair.taken, by) + pair.second.backward,
                               pair.first.backward)};
}

kernels::AttentionShape AttentionOfRank(const TensorGrid& grid, const AttentionOptions& options) {
  const size_t queries = options.heads * options.head_dim;
  const LinearBlocks second =
      *BlocksOf(grid, LinearRole::kSecond, {options.tokens(), queries, options.hidden}, kAnyRank);
  const size_t heads = second.x.columns.count / options.head_dim;
  return {.batch = second.x.rows.count / options.sequence_length,
          .sequence = options.sequence_length,
          .heads = heads,
          .kv_heads = heads * options.kv_heads / options.heads,
          .head_dim = options.head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(options.head_dim)),
          .window = options.window};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const AttentionOptions& options,
                       const ScratchBy& by) {
  const size_t queries = options.heads * options.head_dim;
  const size_t outputs = queries + 2 * options.kv_heads * options.head_dim;
  const LinearOptions one = {.role = LinearRole::kFirst,
                             .shape = {options.tokens(), options.hidden, outputs},
                             .bias = options.bias};
  const LinearOptions two = {.role = LinearRole::kSecond,
                             .shape = {options.tokens(), queries, options.hidden},
                             .bias = options.bias};
  const PairBytes pair = PairOf(grid, one, two, by);
  const size_t qkv = by.element * pair.given, attended = by.element * pair.taken;
  const size_t rounded = RoundedBytes(pair.taken, by);
  ScratchBytes attention;
  if (by.pieces == nullptr) {
    attention.forward = attention.backward =
        kernels::AttentionWorkspaceBytes(AttentionOfRank(grid, options), by.threads);
  } else {  // which attend in fp32
    attention = {.forward = Bytes(pair.given) + rounded + by.pieces->forward,
                 .backward = 2 * (Bytes(pair.given) + rounded) + by.pieces->backward};
  }
  return {.forward = std::max({RoundedBytes(pair.given, by) + pair.first.forward, attention.forward,
                               pair.second.forward}),
          .backward = qkv + std::max(attended + std::max(rounded + pair.second.backward,
                                                         attention.backward),
                                     pair.first.backward)};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const NormOptions& options) {
  const NormBlocks blocks = *BlocksOf(grid, options, kAnyRank);
  const kernels::NormPart part = {.rows = blocks.x.rows.count, .cols = blocks.x.columns.count};
  const size_t sums = options.kind == NormKind::kRms ? 1 : 2;
  const size_t gathered = LayoutOfFeatures(grid.mode()).gathered.empty() ? 0 : part.cols;
  return {.forward = Bytes(sums * gathered),
          .backward = Bytes((1 + sums) * gathered + sums * part.rows) +
                      kernels::NormPartWorkspaceBytes(part)};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const EmbeddingShape& shape) {
  const EmbeddingBlocks blocks = *BlocksOf(grid, shape, kAnyRank);
  const bool gathered = grid.mode() == TensorMode::k3D;
  const size_t rows = blocks.table.rows.count * (gathered ? static_cast<size_t>(grid.side()) : 1);
  const size_t columns = blocks.table.columns.count;
  const size_t room = Bytes((gathered ? rows * columns : 0) + blocks.ids.count * columns);
  return {.forward = room,
          .backward = room + kernels::EmbeddingWorkspaceBytes({.tokens = blocks.ids.count,
                                                               .hidden = columns,
                                                               .vocabulary = shape.vocabulary,
                                                               .first_row = 0,
                                                               .rows = rows})};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const LogitsShape& shape) {
  return {.forward = Bytes(2 * BlockOf(grid, shape, kAnyRank)->rows.count), .backward = 0};
}

}  // namespace geminid::collectives
