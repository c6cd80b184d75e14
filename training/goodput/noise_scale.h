// The gradient noise scale: the number of sequences in a step beyond which more of them hardly
// improve its gradient (McCandlish et al., "An Empirical Model of Large-Batch Training", appendix
// A.1). Pure.
#ifndef GEMINID_TRAINING_GOODPUT_NOISE_SCALE_H_
#define GEMINID_TRAINING_GOODPUT_NOISE_SCALE_H_

#include <cstdint>
#include <optional>

namespace geminid::trainer {

// The measurement of one step: the squared norms of its separate gradients and of their mean. Both
// are without loss scaling and before clipping.
struct NoiseSample {
  uint64_t gradients = 0;     // separate gradients: one for each rank and micro-batch
  double sequences = 0;       // each of them is the mean over so many
  double mean_square = 0;     // the mean of their squared norms
  double square_of_mean = 0;  // the squared norm of their mean
};

// B_simple = tr(Sigma) / |G|^2, with the range that two standard errors of |G|^2 leave.
struct NoiseScale {
  double sequences = 0;
  double low = 0;
  std::optional<double> high{};  // nothing: |G|^2 may be zero as far as the samples can tell
};

// Averages the numerator and the denominator separately, as their ratio in one step is biased and
// may be negative. Not thread-safe.
class NoiseMeter {
 public:
  // `decay`: the factor by which each later sample reduces a sample's weight. The first
  // 1 / (1 - decay) samples or so have equal weights.
  explicit NoiseMeter(double decay = 0.99);

  // The state from which a meter continues as before, except for the rounding to floats.
  struct Memory {
    uint64_t samples = 0;  // above kMostSamples: that number, as weights no longer change by then
    float gradient_square = 0;
    float spread = 0;  // of the samples of gradient_square: the root of their squared deviations
    float gradient_variance = 0;

    bool operator==(const Memory&) const = default;
  };
  static constexpr uint64_t kMostSamples = 0xffff;
  Memory memory() const;
  explicit NoiseMeter(const Memory& memory, double decay = 0.99);

  // False, and nothing changes, if the sample has fewer than two gradients or is not finite, as
  // after an overflow.
  bool Add(const NoiseSample& sample);

  uint64_t samples() const { return samples_; }
  // Both unbiased, so that |G|^2 may come out negative. 0 before the first sample.
  double gradient_square() const { return square_.mean(); }      // |G|^2, of the true gradient
  double gradient_variance() const { return variance_.mean(); }  // tr(Sigma), of one sequence
  // The standard error of gradient_square, as if samples were independent.
  double gradient_square_error() const { return square_.Error(); }

  // Nothing before kLeastSamples samples, or while |G|^2 is not above its standard error.
  std::optional<NoiseScale> Estimate() const;

  static constexpr uint64_t kLeastSamples = 8;

 private:
  // An average with decaying weights, and its error from the spread of the samples.
  class Average {
   public:
    void Add(double value, double decay);
    // The state after `samples` calls of Add that gave this mean and root of squared deviations.
    void Restore(uint64_t samples, double mean, double spread, double decay);
    double spread() const;
    double mean() const { return weight_ > 0 ? mean_ : 0; }
    double Error() const;

   private:
    double weight_ = 0;
    double squared_weight_ = 0;  // the sum of the squares of all weights
    double mean_ = 0;
    double deviation_ = 0;  // the weighted sum of squared deviations
  };

  const double decay_;
  uint64_t samples_ = 0;
  Average square_;
  Average variance_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_NOISE_SCALE_H_
