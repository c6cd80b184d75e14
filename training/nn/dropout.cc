#include "training/nn/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/counter_random.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::trainer {
namespace {

using kernels::BFloat16;

// Separates the random numbers from other streams with the same seed.
constexpr uint64_t kDropoutStream = 0x64726F706F7574;  // "dropout"
constexpr double kLevels = uint64_t{1} << kernels::DropoutPattern::kBits;

// The dropout factors of consecutive elements.
class Factors {
 public:
  Factors(const DropoutPlace& place, size_t first_token)
      : pattern_(DropoutPatternOf(place)), next_(FirstElement(place, first_token)) {}

  float Next() {
    if (next_ % kernels::DropoutPattern::kElementsPerDraw == 0 || !drawn_) {
      draw_ = pattern_.Draw(next_);
    }
    drawn_ = true;
    return pattern_.Factor(draw_, next_++);
  }

 private:
  const kernels::DropoutPattern pattern_;
  uint64_t next_;
  uint64_t draw_ = 0;
  bool drawn_ = false;
};

float ToFloat(float value) { return value; }
float ToFloat(BFloat16 value) { return value.ToFloat(); }
void Store(float value, float* out) { *out = value; }
void Store(float value, BFloat16* out) { *out = BFloat16::FromFloat(value); }

}  // namespace

kernels::DropoutPattern DropoutPatternOf(const DropoutPlace& place) {
  const double below = std::clamp(std::round(place.dropout.share * kLevels), 0.0, kLevels - 1);
  return {.stream = base::Mix(place.dropout.seed ^ kDropoutStream) + place.place,
          .below = static_cast<uint64_t>(below),
          .kept = static_cast<float>(kLevels / (kLevels - below))};
}

uint64_t FirstElement(const DropoutPlace& place, size_t first_token) {
  return (place.dropout.first_sample * place.sequence_length + first_token) * place.hidden;
}

template <typename T>
void ApplyDropout(const DropoutPlace& place, size_t first_token, size_t tokens, const T* x, T* y) {
  Factors factors(place, first_token);
  for (size_t i = 0; i < tokens * place.hidden; ++i) Store(ToFloat(x[i]) * factors.Next(), &y[i]);
}

template <typename T>
void AddDropout(const DropoutPlace& place, size_t first_token, size_t tokens, const T* x, T* sum) {
  Factors factors(place, first_token);
  for (size_t i = 0; i < tokens * place.hidden; ++i) {
    Store(ToFloat(sum[i]) + ToFloat(x[i]) * factors.Next(), &sum[i]);
  }
}

#define GEMINID_INSTANTIATE(T)                                                   \
  template void ApplyDropout(const DropoutPlace&, size_t, size_t, const T*, T*); \
  template void AddDropout(const DropoutPlace&, size_t, size_t, const T*, T*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
