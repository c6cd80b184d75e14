#include "training/nn/micro_batch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::trainer {
namespace {

absl::Status CheckImages(const MicroBatch& batch, const ImageShape& image) {
  const size_t sequences = batch.shape.sequences;
  const size_t elements = sequences * image.patches() * image.patch_elements();
  if (batch.shape.sequence_length == image.tokens() && batch.patches.size() == elements &&
      batch.targets.size() == batch.shape.tokens()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a micro-batch of ", sequences, " images came with ", batch.shape.sequence_length,
      " tokens each, ", batch.patches.size(), " elements of patches and ", batch.targets.size(),
      " targets; the model's images have ", image.tokens(), " tokens each and ", elements,
      " elements in all"));
}

}  // namespace

absl::Status CheckMicroBatch(const MicroBatch& batch, const ModelConfig& config) {
  const uint64_t context = config.context;
  const size_t length = batch.shape.sequence_length;
  if (batch.shape.sequences < 1 || length < 1 || batch.positions.EndOf(length) > context) {
    return absl::InvalidArgumentError(
        absl::StrCat("a micro-batch has at least one sequence of 1 to ", context, " tokens, not ",
                     batch.shape.sequences, " of ", length));
  }
  if (config.image) return CheckImages(batch, *config.image);
  if (batch.tokens.size() != batch.shape.tokens() || batch.targets.size() != batch.shape.tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a micro-batch of ", batch.shape.tokens(), " tokens came with ",
                     batch.tokens.size(), " tokens and ", batch.targets.size(), " targets"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RotaryTables> RotaryPositions::Of(size_t position, size_t count) {
  const size_t half = angles_.size();
  const size_t end = position + count;
  if (end > positions_) {
    // Doubles the table, because generated text needs one more position for each token.
    const size_t positions = std::max(end, std::min(2 * positions_, context_));
    std::vector<float> tables(2 * positions * half);
    GEMINID_RETURN_IF_ERROR(
        kernels::FromKernel(kernels::RotaryTable(positions, angles_, length_, tables.data(),
                                                 tables.data() + positions * half),
                            "RotaryTable"));
    tables_ = std::move(tables);
    positions_ = positions;
  }
  const float* const cos = tables_.data() + position * half;
  return RotaryTables{.cos = cos, .sin = cos + positions_ * half};
}

}  // namespace geminid::trainer
