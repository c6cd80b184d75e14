#include "training/data/sampling.h"

#include "absl/strings/str_cat.h"
#include "base/counter_random.h"
#include "training/data/permutation.h"

namespace geminid::trainer {
namespace {

// Separates these streams from those of the parameters, which have the same seed.
constexpr uint64_t kSampleStream = 0x73616D706C6573;  // "samples"
constexpr uint64_t kEpochStream = 0x65706F636873;     // "epochs"

}  // namespace

const char* Name(Sampling sampling) {
  switch (sampling) {
    case Sampling::kReplacement:
      return "replacement";
    case Sampling::kShuffle:
      return "shuffle";
    case Sampling::kSequential:
      return "sequential";
  }
  return "";
}

uint64_t WindowsIn(uint64_t tokens, uint64_t context) {
  return tokens == 0 ? 0 : (tokens - 1) / context;
}

uint64_t StartOfSample(Sampling sampling, uint64_t seed, uint64_t tokens, uint64_t context,
                       uint64_t sample) {
  if (sampling == Sampling::kReplacement) {
    return base::RandomBits(seed ^ kSampleStream, sample) % (tokens - context);
  }
  const uint64_t windows = WindowsIn(tokens, context);
  const uint64_t epoch = sample / windows;
  uint64_t window = sample % windows;
  if (sampling == Sampling::kShuffle) {
    window = Permutation(windows, base::RandomBits(seed ^ kEpochStream, epoch)).At(window);
  }
  return window * context;
}

absl::StatusOr<uint64_t> StepsOfEpochs(uint64_t epochs, uint64_t windows,
                                       uint64_t sequences_per_step, uint64_t steps_max) {
  uint64_t samples = 0;
  const bool overflows = __builtin_mul_overflow(epochs, windows, &samples);
  const uint64_t steps = samples / sequences_per_step + (samples % sequences_per_step != 0 ? 1 : 0);
  if (!overflows && steps <= steps_max) return steps;
  return absl::InvalidArgumentError(
      absl::StrCat("--epochs ", epochs, ": an epoch is ", windows, " sequences and a step ",
                   sequences_per_step, ", so these epochs take more than the ", steps_max,
                   " steps that a run has at most; give fewer epochs, or a larger --batch"));
}

}  // namespace geminid::trainer
