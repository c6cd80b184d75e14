#include "training/nn/parallel/tensor/layer_scratch.h"

#include <algorithm>

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

}  // namespace

ScratchBytes BlocksScratchOf(const TensorGrid& grid, const LinearOptions& options) {
  const LinearBlocks blocks = *BlocksOf(grid, options.role, options.shape, kAnyRank);
  const LinearShape part = PartOf(grid, options, blocks);
  const size_t x = Bytes(part.tokens * part.in), w = Bytes(part.out * part.in);
  const size_t y = Bytes(part.tokens * part.out), bias = Bytes(options.bias ? part.out : 0);
  switch (grid.mode()) {
    case TensorMode::k1D:
      return {};
    case TensorMode::k1DSequence:
      if (options.role == LinearRole::kSecond) return {.forward = y, .backward = y};
      return {.forward = x, .backward = 2 * x};
    case TensorMode::k2D:
    case TensorMode::k25D: {
      const size_t one = Bytes(blocks.x.elements());
      const size_t both = 2 * (one + Bytes(blocks.w.elements())) + bias;
      return {.forward = both, .backward = both + one};
    }
    case TensorMode::k3D:
      return {.forward = x + w + y, .backward = 2 * x + w + y};
  }
  return {};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const LinearOptions& options, size_t threads) {
  const LinearBlocks blocks = *BlocksOf(grid, options.role, options.shape, kAnyRank);
  const LinearShape part = PartOf(grid, options, blocks);
  const ScratchBytes room = BlocksScratchOf(grid, options);
  const ProductBytes products = ProductBytesOf(part, threads);
  const size_t bias = options.bias ? products.backward_bias : 0;
  return {.forward = room.forward + products.forward,
          .backward =
              room.backward + std::max({products.backward_input, products.backward_weight, bias})};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const MlpOptions& options, size_t threads) {
  const size_t sections = options.activation == Activation::kSwiglu ? 2 : 1;
  const LinearOptions one = {.role = LinearRole::kFirst,
                             .shape = {options.tokens, options.hidden, sections * options.inner},
                             .bias = options.bias};
  const LinearOptions two = {.role = LinearRole::kSecond,
                             .shape = {options.tokens, options.inner, options.hidden},
                             .bias = options.bias};
  const ScratchBytes first = ScratchOf(grid, one, threads), second = ScratchOf(grid, two, threads);
  const size_t inner = Bytes(BlocksOf(grid, two.role, two.shape, kAnyRank)->x.elements());
  const size_t kept = Bytes(BlocksOf(grid, one.role, one.shape, kAnyRank)->y.elements());
  return {.forward = std::max(first.forward, inner + second.forward),
          .backward = std::max(inner, kept) + std::max(inner + second.backward, first.backward)};
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
          .scale = 1.0F};
}

ScratchBytes ScratchOf(const TensorGrid& grid, const AttentionOptions& options, size_t threads,
                       const ScratchBytes* pieces) {
  const size_t queries = options.heads * options.head_dim;
  const size_t outputs = queries + 2 * options.kv_heads * options.head_dim;
  const LinearOptions one = {.role = LinearRole::kFirst,
                             .shape = {options.tokens(), options.hidden, outputs},
                             .bias = options.bias};
  const LinearOptions two = {.role = LinearRole::kSecond,
                             .shape = {options.tokens(), queries, options.hidden},
                             .bias = options.bias};
  const ScratchBytes first = ScratchOf(grid, one, threads), second = ScratchOf(grid, two, threads);
  const size_t qkv = Bytes(BlocksOf(grid, one.role, one.shape, kAnyRank)->y.elements());
  const size_t attended = Bytes(BlocksOf(grid, two.role, two.shape, kAnyRank)->x.elements());
  ScratchBytes attention;
  if (pieces == nullptr) {
    attention.forward = attention.backward =
        kernels::AttentionWorkspaceBytes(AttentionOfRank(grid, options), threads);
  } else {
    attention = {.forward = qkv + pieces->forward, .backward = 2 * qkv + pieces->backward};
  }
  return {.forward = std::max({first.forward, attention.forward, second.forward}),
          .backward = qkv + std::max(attended + std::max(second.backward, attention.backward),
                                     first.backward)};
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
  const size_t room = Bytes((gathered ? rows * columns : 0) +
                            (grid.mode() == TensorMode::k1D ? 0 : blocks.ids.count * columns));
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
