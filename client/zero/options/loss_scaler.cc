#include "geminid/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace geminid {

LossScalerOptions FixedLossScale(double scale) {
  return {.initial_scale = scale,
          .growth_factor = 1,
          .backoff_factor = 1,
          .min_scale = scale,
          .max_scale = scale};
}

absl::Status CheckLossScaler(const LossScalerOptions& options) {
  const auto bad = [](const char* option, double value, const char* range) {
    return absl::InvalidArgumentError(
        absl::StrCat("the loss scaler's ", option, " is ", value, "; it must be ", range));
  };
  if (!std::isfinite(options.min_scale) || options.min_scale <= 0) {
    return bad("min_scale", options.min_scale, "finite and positive");
  }
  if (!std::isfinite(options.max_scale) || options.max_scale < options.min_scale) {
    return bad("max_scale", options.max_scale, "finite and at least min_scale");
  }
  if (!(options.initial_scale >= options.min_scale && options.initial_scale <= options.max_scale)) {
    return bad("initial_scale", options.initial_scale, "from min_scale to max_scale");
  }
  if (!std::isfinite(options.growth_factor) || options.growth_factor < 1) {
    return bad("growth_factor", options.growth_factor, "finite and at least 1");
  }
  if (!(options.backoff_factor > 0 && options.backoff_factor <= 1)) {
    return bad("backoff_factor", options.backoff_factor, "above 0, at most 1");
  }
  if (options.growth_interval == 0)
    return bad("growth_interval", options.growth_interval, "at least 1");
  if (options.hysteresis == 0) return bad("hysteresis", options.hysteresis, "at least 1");
  return absl::OkStatus();
}

void LossScaler::OnStep(bool overflow) {
  if (overflow) {
    state_.good_steps = 0;
    state_.overflows = std::min(state_.overflows + 1, options_.hysteresis);
    if (state_.overflows == options_.hysteresis) {
      state_.scale = std::max(state_.scale * options_.backoff_factor, options_.min_scale);
    }
    return;
  }
  if (++state_.good_steps < options_.growth_interval) return;
  state_.good_steps = 0;
  state_.overflows = 0;
  state_.scale = std::min(state_.scale * options_.growth_factor, options_.max_scale);
}

}  // namespace geminid
