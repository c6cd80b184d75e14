#include "training/nn/parallel/tensor/parallel_cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "training/nn/parallel/tensor/block_size.h"

namespace geminid::collectives {

using kernels::kIgnoredTarget;

absl::StatusOr<Block> BlockOf(const TensorGrid& grid, const LogitsShape& shape, int rank) {
  const ActivationLayout layout = LayoutOfX(grid.mode(), LinearRole::kSecond);
  Block block;
  GEMINID_ASSIGN_OR_RETURN(block.rows, PieceOf(grid, layout.tokens, "tokens", shape.tokens, rank));
  GEMINID_ASSIGN_OR_RETURN(block.columns, PieceOf(grid, layout.features, "words",
                                                  PaddedVocabulary(grid, shape.vocabulary), rank));
  return block;
}

absl::StatusOr<std::unique_ptr<ParallelCrossEntropy>> ParallelCrossEntropy::Make(
    TensorGroups& groups, const LogitsShape& shape, LinearScratch& scratch) {
  GEMINID_ASSIGN_OR_RETURN(const Block block, BlockOf(groups.grid(), shape, groups.rank()));
  return std::unique_ptr<ParallelCrossEntropy>(
      new ParallelCrossEntropy(groups, shape, block, scratch));
}

ParallelCrossEntropy::ParallelCrossEntropy(TensorGroups& groups, const LogitsShape& shape,
                                           const Block& block, LinearScratch& scratch)
    : groups_(groups),
      shape_(shape),
      block_(block),
      scratch_(scratch),
      layout_(LayoutOfX(groups.grid().mode(), LinearRole::kSecond)),
      // The block's columns that are words. The last ranks of a small vocabulary may have none.
      part_{.tokens = block.rows.count,
            .columns = std::clamp(shape.vocabulary, block.columns.begin,
                                  block.columns.begin + block.columns.count) -
                       block.columns.begin,
            .first_column = block.columns.begin,
            .row_stride = block.columns.count} {}

absl::Status ParallelCrossEntropy::Check(std::span<const float> logits,
                                         std::span<const int32_t> targets,
                                         size_t statistics) const {
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("logits", logits.size(), block_.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("targets", targets.size(), block_.rows.count));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("statistics", statistics, this->statistics()));
  if (!scratch_.math().on_host()) return absl::OkStatus();
  for (size_t token = 0; token < targets.size(); ++token) {
    if (targets[token] == kIgnoredTarget) continue;
    if (targets[token] >= 0 && static_cast<size_t>(targets[token]) < shape_.vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("token %d has the target %d; the vocabulary has %d words",
                        block_.rows.begin + token, targets[token], shape_.vocabulary));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParallelCrossEntropy::Loss> ParallelCrossEntropy::Forward(
    std::span<const float> logits, std::span<const int32_t> targets, std::span<float> statistics) {
  GEMINID_RETURN_IF_ERROR(Check(logits, targets, statistics.size()));
  const size_t tokens = block_.rows.count;
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock room, groups_.OrTellRanks(scratch_.Take(
                                                      "sums of sharded logits", 2 * tokens)));
  LayerMath& math = scratch_.math();
  AxisRanks& words = groups_.Along(layout_.features.front());
  const std::span<float> max = statistics.first(tokens);
  GEMINID_RETURN_IF_ERROR(math.LogitsMax(part_, logits.data(), max.data()));
  GEMINID_RETURN_IF_ERROR(words.AllReduce(max, max, ReduceOp::kMax));
  const std::span<float> both = room.all();
  const std::span<float> sums = both.first(tokens), at_target = both.last(tokens);
  GEMINID_RETURN_IF_ERROR(math.LogitsSums(part_, logits.data(), targets.data(), max.data(),
                                          sums.data(), at_target.data()));
  GEMINID_RETURN_IF_ERROR(words.AllReduce(both, both, ReduceOp::kSum));
  GEMINID_RETURN_IF_ERROR(
      math.Copy(sums.data(), sums.size_bytes(), statistics.last(tokens).data()));
  GEMINID_ASSIGN_OR_RETURN(const auto word, OnHost<int32_t>::Of(math, targets));
  GEMINID_ASSIGN_OR_RETURN(const auto most, OnHost<float>::Of(math, max));
  GEMINID_ASSIGN_OR_RETURN(const auto sums_and_targets, OnHost<float>::Of(math, both));
  std::array<double, 2> loss = {};  // the sum and the count
  for (size_t t = 0; t < tokens; ++t) {
    if (word[t] == kIgnoredTarget) continue;
    loss[0] += std::log(double{sums_and_targets[t]}) + double{most[t]} -
               double{sums_and_targets[tokens + t]};
    loss[1] += 1;
  }
  GEMINID_RETURN_IF_ERROR(groups_.AddOnHost(layout_.tokens, loss));
  return Loss{.sum = loss[0], .counted = static_cast<size_t>(loss[1])};
}

absl::Status ParallelCrossEntropy::Backward(std::span<const float> logits,
                                            std::span<const int32_t> targets,
                                            std::span<const float> statistics, float grad_scale,
                                            std::span<float> dlogits) {
  GEMINID_RETURN_IF_ERROR(Check(logits, targets, statistics.size()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dlogits", dlogits.size(), block_.elements()));
  const float* const max = statistics.data();
  return scratch_.math().LogitsGradient(part_, logits.data(), targets.data(), max,
                                        max + block_.rows.count, grad_scale, dlogits.data());
}

}  // namespace geminid::collectives
