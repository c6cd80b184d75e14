#include "tools/trainer/batches.h"

#include "absl/strings/str_cat.h"
#include "base/counter_random.h"
#include "base/status_macros.h"
#include "tools/trainer/text.h"

namespace geminid::trainer {
namespace {

// Keeps the samples' stream apart from those of the parameters, which come from the same seed.
constexpr uint64_t kSampleStream = 0x73616D706C6573;  // "samples"

}  // namespace

absl::Status CheckBatch(uint64_t batch, uint64_t world_size) {
  if (batch >= 1 && batch % world_size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a batch of ", batch, " sequences cannot be divided among ", world_size,
      " ranks; --batch counts the sequences of all ranks and must be a multiple of their number"));
}

absl::StatusOr<Batches> Batches::Create(std::span<const uint8_t> text, const BatchPlan& plan) {
  GEMINID_RETURN_IF_ERROR(CheckLength(text.size(), plan.context));
  GEMINID_RETURN_IF_ERROR(CheckBatch(plan.batch, plan.world_size));
  return Batches(text, plan);
}

MicroBatch Batches::Get(uint64_t step, uint64_t micro_batch) {
  const uint64_t first = FirstSample(step) + micro_batch * plan_.batch + plan_.rank * sequences();
  tokens_.clear();
  targets_.clear();
  for (uint64_t sample = first; sample < first + sequences(); ++sample) {
    const uint64_t starts = text_.size() - plan_.context;
    const uint64_t start = base::RandomBits(plan_.seed ^ kSampleStream, sample) % starts;
    for (uint64_t t = 0; t < plan_.context; ++t) {
      tokens_.push_back(text_[start + t]);
      targets_.push_back(text_[start + t + 1]);
    }
  }
  return {.shape = {.sequences = sequences(), .sequence_length = plan_.context},
          .tokens = tokens_,
          .targets = targets_};
}

}  // namespace geminid::trainer
