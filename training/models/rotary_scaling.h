// Scaled rotary positions: how models that were trained with short texts turn the queries and keys
// of longer ones. The formulas are those of transformers.
#ifndef GEMINID_TRAINING_MODELS_ROTARY_SCALING_H_
#define GEMINID_TRAINING_MODELS_ROTARY_SCALING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace geminid::trainer {

struct RotaryScaling {
  // kLinear: positions divided by the factor (arXiv:2306.15595). kLlama3: pairs that turn slowly
  // are divided, fast ones not, with a ramp in between (arXiv:2407.21783). kYarn: likewise, with a
  // ramp over the pairs, and longer queries and keys (arXiv:2309.00071).
  enum class Kind : uint8_t { kNone, kLinear, kLlama3, kYarn };

  Kind kind = Kind::kNone;
  double factor = 1;
  uint64_t original_positions = 0;  // of the first training; LLaMA 3 and YaRN

  // LLaMA 3: pairs that turn less often than `slow` times in the original positions are divided,
  // and those that turn more often than `fast` times are not.
  double slow_turns = 1;
  double fast_turns = 4;

  // YaRN: the same, of which the ramp is rounded to whole pairs unless told otherwise.
  double beta_slow = 1;
  double beta_fast = 32;
  bool rounds_ramp = true;
  double attention_factor = 1;  // of cosines and sines

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

// "linear", "llama3" or "yarn", as transformers writes it; "default" without scaling.
const char* Name(RotaryScaling::Kind kind);

// INVALID_ARGUMENT naming the value that is wrong and what would be right.
absl::Status Validate(const RotaryScaling& scaling);

// YaRN's attention factor where none is given. A pair of zeros: neither of the two weights is
// given.
double YarnAttentionFactor(double factor, double mscale, double mscale_all_dim);

// Of each pair of a head's elements the angle from one position to the next.
std::vector<double> RotaryAngles(size_t head_dim, double theta, const RotaryScaling& scaling);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_ROTARY_SCALING_H_
