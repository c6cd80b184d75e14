// What a run says at its end of its batch: the gradient noise scale that it measured, and the batch
// that would learn faster. Pure.
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
  uint64_t ranks = 1;  // that share the sequences of a micro-batch
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
  double gain = 0;         // of best over now, in goodput: 0.1 is a tenth more
  double rate_factor = 1;  // of the learning rate, from now to best
};

// Advice for up to kMostGrowth times the run's own batch. Of a run that was timed with one size of
// micro-batch, for more or fewer of these: nothing is known of others.
BatchAdvice Advise(const AdviceFacts& facts, const NoiseMeter& noise,
                   std::optional<StepModel> steps);
inline constexpr uint64_t kMostGrowth = 16;
// Below it, the batch is said to be right: times and noise are not known better.
inline constexpr double kLeastGain = 0.03;

// A line for people; empty: there is no advice.
std::string AdviceWords(const BatchAdvice& advice);
// The value of one key.
void WriteAdvice(base::JsonWriter& json, const BatchAdvice& advice);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_ADVICE_H_
