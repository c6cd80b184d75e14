// The advice on the batch at the end of a run: the measured gradient noise scale, and the batch
// that would learn fastest. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_ADVICE_H_
#define GEMINID_TRAINING_GOODPUT_ADVICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "training/goodput/goodput.h"
#include "training/goodput/noise_scale.h"
#include "training/goodput/step_model.h"

namespace geminid::trainer {

struct AdviceFacts {
  std::string unmeasured;  // why the run cannot measure; empty: it can
  BatchShape now;
  uint64_t ranks = 1;  // data-parallel ranks
  RateRule rule = RateRule::kSquareRoot;
};

struct BatchAdvice {
  std::string unknown;  // why there is no advice; empty: there is
  BatchShape now;
  RateRule rule = RateRule::kSquareRoot;
  uint64_t samples = 0;
  double gradient_square = 0;
  double gradient_square_error = 0;
  double gradient_variance = 0;
  std::optional<NoiseScale> noise;
  std::optional<StepModel> steps;
  std::vector<BatchRow> rows;  // with advice, the smallest batch first
  BatchRow best;
  double gain = 0;         // in goodput, from now to best: 0.1 is a tenth more
  double rate_factor = 1;  // of the learning rate, from now to best
};

// Advice for batches of up to kMostGrowth times the run's own. If only one size of micro-batch was
// timed, the advice keeps that size and changes their number alone.
BatchAdvice Advise(const AdviceFacts& facts, const NoiseMeter& noise,
                   std::optional<StepModel> steps);
inline constexpr uint64_t kMostGrowth = 16;
// If the gain is below this, the advice is to keep the batch: times and noise are no more exact.
inline constexpr double kLeastGain = 0.03;

// A line for people; empty: there is no advice.
std::string AdviceWords(const BatchAdvice& advice);
// Writes a JSON object, as the value of a key.
void WriteAdvice(base::JsonWriter& json, const BatchAdvice& advice);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_ADVICE_H_
