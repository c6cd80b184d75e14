#include "tools/trainer/micro_batch.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::trainer {

absl::Status CheckMicroBatch(const MicroBatch& batch, uint64_t context) {
  const size_t length = batch.shape.sequence_length;
  if (batch.shape.sequences < 1 || length < 1 || batch.positions.EndOf(length) > context) {
    return absl::InvalidArgumentError(
        absl::StrCat("a micro-batch has at least one sequence of 1 to ", context, " tokens, not ",
                     batch.shape.sequences, " of ", length));
  }
  if (batch.tokens.size() != batch.shape.tokens() || batch.targets.size() != batch.shape.tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a micro-batch of ", batch.shape.tokens(), " tokens came with ",
                     batch.tokens.size(), " tokens and ", batch.targets.size(), " targets"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> RotaryTableOf(const ModelConfig& config,
                                                 const Positions& positions, size_t length) {
  const size_t end = positions.EndOf(length);
  const size_t width = config.head_dim() / 2;
  std::vector<float> all(2 * end * width);
  GEMINID_RETURN_IF_ERROR(
      kernels::FromKernel(kernels::RotaryTable(end, config.head_dim(), config.rotary_theta,
                                               all.data(), all.data() + end * width),
                          "RotaryTable"));
  std::vector<float> table;
  table.reserve(2 * length * width);
  for (const size_t row : {size_t{0}, end}) {
    for (const Positions::Run& run : positions.RunsOf(length)) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>((row + run.position) * width);
      table.insert(table.end(), begin, begin + static_cast<ptrdiff_t>(run.count * width));
    }
  }
  return table;
}

}  // namespace geminid::trainer
