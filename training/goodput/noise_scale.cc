#include "training/goodput/noise_scale.h"

#include <algorithm>
#include <cmath>

namespace geminid::trainer {

NoiseMeter::NoiseMeter(double decay) : decay_(decay) {}

NoiseMeter::NoiseMeter(const Memory& memory, double decay)
    : decay_(decay), samples_(memory.samples) {
  square_.Restore(samples_, memory.gradient_square, memory.spread, decay);
  variance_.Restore(samples_, memory.gradient_variance, 0, decay);
}

NoiseMeter::Memory NoiseMeter::memory() const {
  return {.samples = std::min(samples_, kMostSamples),
          .gradient_square = static_cast<float>(square_.mean()),
          .spread = static_cast<float>(square_.spread()),
          .gradient_variance = static_cast<float>(variance_.mean())};
}

bool NoiseMeter::Add(const NoiseSample& sample) {
  if (sample.gradients < 2 || !(sample.sequences > 0)) return false;
  if (!std::isfinite(sample.mean_square) || !std::isfinite(sample.square_of_mean)) return false;
  // E[mean_square] = |G|^2 + tr/b and E[square_of_mean] = |G|^2 + tr/(n b), solved for both.
  const auto n = static_cast<double>(sample.gradients);
  square_.Add((n * sample.square_of_mean - sample.mean_square) / (n - 1), decay_);
  variance_.Add(sample.sequences * n * (sample.mean_square - sample.square_of_mean) / (n - 1),
                decay_);
  ++samples_;
  return true;
}

std::optional<NoiseScale> NoiseMeter::Estimate() const {
  const double square = gradient_square();
  const double error = gradient_square_error();
  if (samples_ < kLeastSamples || square <= error) return std::nullopt;
  // Equal gradients have no variance; rounding may have left some of either sign.
  const double variance = std::max(gradient_variance(), 0.0);
  NoiseScale scale = {.sequences = variance / square, .low = variance / (square + 2 * error)};
  if (square > 2 * error) scale.high = variance / (square - 2 * error);
  return scale;
}

// West's update of a weighted mean; what came before loses `decay` of its weight first.
void NoiseMeter::Average::Add(double value, double decay) {
  weight_ = decay * weight_ + 1;
  squared_weight_ = decay * decay * squared_weight_ + 1;
  const double delta = value - mean_;
  mean_ += delta / weight_;
  deviation_ = decay * deviation_ + delta * (value - mean_);
}

void NoiseMeter::Average::Restore(uint64_t samples, double mean, double spread, double decay) {
  weight_ = squared_weight_ = 0;
  for (uint64_t i = 0; i < samples; ++i) {
    const double before = weight_;
    weight_ = decay * weight_ + 1;
    squared_weight_ = decay * decay * squared_weight_ + 1;
    if (weight_ == before) break;
  }
  mean_ = mean;
  deviation_ = spread * spread;
}

double NoiseMeter::Average::spread() const { return std::sqrt(deviation_); }

double NoiseMeter::Average::Error() const {
  const double effective = weight_ * weight_ / squared_weight_;
  if (!(effective > 1)) return 0;
  return std::sqrt(deviation_ / weight_ / (effective - 1));
}

}  // namespace geminid::trainer
