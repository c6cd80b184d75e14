#include "training/data/batches.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/data/images.h"
#include "training/data/masked_tokens.h"
#include "training/nn/parallel/sequence/zigzag.h"

namespace geminid::trainer {

absl::Status CheckBatch(uint64_t batch, uint64_t world_size) {
  if (batch >= 1 && batch % world_size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--batch ", batch, ": it cannot be divided among ", world_size,
      " ranks; it counts the sequences of all ranks and must be a multiple of their number"));
}

Positions PositionsOf(const BatchPlan& plan) {
  if (!plan.zigzag) return {.first = plan.piece * (plan.context / plan.pieces)};
  const collectives::Zigzag zigzag = {.sequence = plan.context, .ranks = plan.pieces};
  return {.first = zigzag.PlaceOf(plan.piece, 0),
          .second_half = zigzag.PlaceOf(plan.piece, zigzag.chunk())};
}

absl::StatusOr<Batches> Batches::Create(const TokenRange& data, const BatchPlan& plan) {
  GEMINID_RETURN_IF_ERROR(CheckLength(data, plan.context));
  GEMINID_RETURN_IF_ERROR(CheckBatch(plan.batch, plan.world_size));
  return Batches(data, plan);
}

absl::Status Batches::AppendPiece(uint64_t start) {
  for (const Positions::Run& run : PositionsOf(plan_).RunsOf(length())) {
    GEMINID_RETURN_IF_ERROR(
        AppendSequence(data_, start + run.position, run.count, &tokens_, &targets_));
  }
  return absl::OkStatus();
}

// Chooses the masked tokens of the whole sequence, so that they do not depend on the slices.
absl::Status Batches::AppendMaskedPiece(uint64_t start, uint64_t stream) {
  std::vector<int32_t> tokens, targets;
  GEMINID_RETURN_IF_ERROR(AppendSequence(data_, start, plan_.context, &tokens, &targets));
  MaskSequence(*plan_.masking, plan_.vocabulary, stream, tokens, targets);
  for (const Positions::Run& run : PositionsOf(plan_).RunsOf(length())) {
    const auto first = static_cast<ptrdiff_t>(run.position);
    const auto end = static_cast<ptrdiff_t>(run.position + run.count);
    tokens_.insert(tokens_.end(), tokens.begin() + first, tokens.begin() + end);
    targets_.insert(targets_.end(), targets.begin() + first, targets.begin() + end);
  }
  return absl::OkStatus();
}

// Its first token has the label.
absl::Status Batches::AppendImage(uint64_t number) {
  const ImageShape& image = *plan_.image;
  targets_.resize(targets_.size() + image.tokens(), kNoTarget);
  int32_t* const label = &*(targets_.end() - static_cast<ptrdiff_t>(image.tokens()));
  GEMINID_RETURN_IF_ERROR(data_.source->Read(data_.first + number, std::span(label, 1)));
  const uint64_t elements = image.patches() * image.patch_elements();
  patches_.resize(patches_.size() + elements);
  return data_.source->images()->ReadPatches(data_.first + number,
                                             std::span(patches_).last(elements));
}

template <typename StartOf, typename StreamOf>
absl::StatusOr<MicroBatch> Batches::Gather(uint64_t first_sample, const StartOf& start_of,
                                           const StreamOf& stream_of) {
  const Positions positions = PositionsOf(plan_);
  tokens_.clear();
  targets_.clear();
  patches_.clear();
  for (uint64_t sample = first_sample; sample < first_sample + sequences(); ++sample) {
    const uint64_t start = start_of(sample);
    if (plan_.image) {
      GEMINID_RETURN_IF_ERROR(AppendImage(start));
      continue;
    }
    GEMINID_RETURN_IF_ERROR(plan_.masking ? AppendMaskedPiece(start, stream_of(sample, start))
                                          : AppendPiece(start));
  }
  return MicroBatch{.shape = {.sequences = sequences(), .sequence_length = length()},
                    .tokens = tokens_,
                    .targets = targets_,
                    .patches = patches_,
                    .positions = positions,
                    .dropout = {.first_sample = first_sample}};
}

absl::StatusOr<MicroBatch> Batches::Get(uint64_t step, uint64_t micro_batch) {
  return GetFrom(FirstSample(step) + micro_batch * plan_.batch);
}

absl::StatusOr<MicroBatch> Batches::GetFrom(uint64_t first_sample) {
  return Gather(
      first_sample + plan_.rank * sequences(),
      [this](uint64_t sample) {
        // An image is a sequence of one, with none after it.
        const uint64_t beyond = plan_.image ? 1 : 0, length = plan_.image ? 1 : plan_.context;
        return StartOfSample(plan_.sampling, plan_.seed, data_.tokens + beyond, length, sample);
      },
      [this](uint64_t sample, uint64_t) { return MaskStreamOfSample(plan_.seed, sample); });
}

absl::StatusOr<MicroBatch> Batches::GetEven(uint64_t index, uint64_t count) {
  const uint64_t samples = count * plan_.batch;
  return Gather(
      index * plan_.batch + plan_.rank * sequences(),
      [&](uint64_t sample) {
        // Spreads the starts from the first to the last, without overflow for data of any length.
        const uint64_t steps = samples > 1 ? samples - 1 : 1;
        const uint64_t last = starts() - 1;
        return last / steps * sample + last % steps * sample / steps;
      },
      [](uint64_t, uint64_t start) { return MaskStreamOfStart(start); });
}

}  // namespace geminid::trainer
