// Loss scaling keeps small fp16 gradients (harmlessly also bf16 ones) above the smallest numbers of
// the type. A pure state machine; alike on all ranks, since they agree on overflows.
//
// The trainer multiplies the gradient of its loss by scale(); the optimizer divides by it. A step
// whose gradients overflowed changes no weight. The scale falls after `hysteresis` overflows
// without growth between them, and at every further overflow. It grows after a run of good steps
// (Micikevicius et al., arXiv 1710.03740, section 3.2). With powers of two, a gradient keeps its
// bits if it is a normal number with and without scaling.
#ifndef GEMINID_LOSS_SCALER_H_
#define GEMINID_LOSS_SCALER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "geminid/export.h"

namespace geminid {

struct LossScalerOptions {
  double initial_scale = 65536;     // 2^16
  double growth_factor = 2;         // >= 1; with backoff_factor 1 too, the scale is fixed
  double backoff_factor = 0.5;      // in (0, 1]
  uint32_t growth_interval = 1000;  // good steps in a row before the scale grows
  uint32_t hysteresis = 2;          // overflows before the scale falls
  double min_scale = 1;
  double max_scale = 4294967296;  // 2^32
};

// A scale that never changes.
GEMINID_EXPORT LossScalerOptions FixedLossScale(double scale);

// INVALID_ARGUMENT names the option: scales must be finite with 0 < min <= initial <= max, factors
// in range, counts at least 1.
GEMINID_EXPORT absl::Status CheckLossScaler(const LossScalerOptions& options);

class GEMINID_EXPORT LossScaler {
 public:
  // The state that a run needs to continue exactly.
  struct State {
    double scale = 1;
    uint32_t good_steps = 0;  // in a row
    uint32_t overflows = 0;   // since the scale last grew
    friend bool operator==(const State&, const State&) = default;
  };

  // `options` must have passed CheckLossScaler.
  explicit LossScaler(const LossScalerOptions& options)
      : options_(options), state_{.scale = options.initial_scale} {}

  double scale() const { return state_.scale; }

  // Call after each step.
  void OnStep(bool overflow);

  const State& state() const { return state_; }
  void Restore(const State& state) { state_ = state; }

 private:
  LossScalerOptions options_;
  State state_;
};

}  // namespace geminid

#endif  // GEMINID_LOSS_SCALER_H_
