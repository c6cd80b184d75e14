// Scaled rotary positions: rotates the queries and keys of texts that are longer than the texts of
// the original training. The formulas are those of transformers.
#ifndef GEMINID_TRAINING_MODELS_ROTARY_SCALING_H_
#define GEMINID_TRAINING_MODELS_ROTARY_SCALING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace geminid::trainer {

struct RotaryScaling {
  // kLinear: positions are divided by the factor (arXiv:2306.15595). kLlama3: slow pairs are
  // divided, fast pairs are not, with a ramp in between (arXiv:2407.21783). kYarn: like kLlama3
  // with a ramp over the pairs' numbers, and with longer queries and keys (arXiv:2309.00071).
  enum class Kind : uint8_t { kNone, kLinear, kLlama3, kYarn };

  Kind kind = Kind::kNone;
  double factor = 1;
  uint64_t original_positions = 0;  // of the original training; for LLaMA 3 and YaRN

  // LLaMA 3: pairs that turn less often than `slow_turns` times in the original positions are
  // divided. Pairs that turn more often than `fast_turns` times are not.
  double slow_turns = 1;
  double fast_turns = 4;

  // YaRN's counterparts. The ramp's ends are rounded to whole pairs unless `rounds_ramp` is false.
  double beta_slow = 1;
  double beta_fast = 32;
  bool rounds_ramp = true;
  double attention_factor = 1;  // the factor of cosines and sines

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

// "linear", "llama3" or "yarn", as in transformers; "default" without scaling.
const char* Name(RotaryScaling::Kind kind);

// INVALID_ARGUMENT names the wrong value and right ones.
absl::Status Validate(const RotaryScaling& scaling);

// YaRN's attention factor if the file gives none. If either weight is zero, both are ignored.
double YarnAttentionFactor(double factor, double mscale, double mscale_all_dim);

// For each pair of a head's elements, the angle between consecutive positions.
std::vector<double> RotaryAngles(size_t head_dim, double theta, const RotaryScaling& scaling);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_ROTARY_SCALING_H_
