#include "training/models/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

absl::Status Refuse(const char* what, double value, const char* right) {
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " of scaled rotary positions is ", value, "; it must be ", right));
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

double Llama3Angle(const RotaryScaling& scaling, double angle) {
  const double turns = static_cast<double>(scaling.original_positions) * angle / kTurn;
  if (turns > scaling.fast_turns) return angle;
  if (turns < scaling.slow_turns) return angle / scaling.factor;
  const double smooth = (turns - scaling.slow_turns) / (scaling.fast_turns - scaling.slow_turns);
  return (1 - smooth) * angle / scaling.factor + smooth * angle;
}

// YaRN's ramp between two pairs, which need not be whole numbers. Angles before the ramp do not
// change, and angles after it are divided.
struct Ramp {
  double begin = 0;
  double end = 0;

  Ramp(size_t head_dim, double theta, const RotaryScaling& scaling) {
    const auto width = static_cast<double>(head_dim);
    // The pair that turns `turns` times in the original positions.
    const auto pair_of = [&](double turns) {
      return width * std::log(static_cast<double>(scaling.original_positions) / (turns * kTurn)) /
             (2 * std::log(theta));
    };
    begin = pair_of(scaling.beta_fast);
    end = pair_of(scaling.beta_slow);
    if (scaling.rounds_ramp) {
      begin = std::floor(begin);
      end = std::ceil(end);
    }
    begin = std::max(begin, 0.0);
    end = std::min(end, width - 1);
    constexpr double kLeastLength = 0.001;
    if (begin == end) end += kLeastLength;
  }

  double At(size_t pair) const {
    return std::clamp((static_cast<double>(pair) - begin) / (end - begin), 0.0, 1.0);
  }
};

}  // namespace

const char* Name(RotaryScaling::Kind kind) {
  switch (kind) {
    case RotaryScaling::Kind::kNone:
      return "default";
    case RotaryScaling::Kind::kLinear:
      return "linear";
    case RotaryScaling::Kind::kLlama3:
      return "llama3";
    case RotaryScaling::Kind::kYarn:
      return "yarn";
  }
  return "";
}

absl::Status Validate(const RotaryScaling& scaling) {
  using Kind = RotaryScaling::Kind;
  if (scaling.kind == Kind::kNone) return absl::OkStatus();
  if (!IsPositive(scaling.factor)) return Refuse("factor", scaling.factor, "above 0, such as 8");
  if (scaling.kind == Kind::kLinear) return absl::OkStatus();
  if (scaling.original_positions == 0) {
    return Refuse("number of original positions", 0, "1 or more, such as 8192");
  }
  if (scaling.kind == Kind::kLlama3) {
    if (!IsPositive(scaling.slow_turns)) {
      return Refuse("low_freq_factor", scaling.slow_turns, "above 0, such as 1");
    }
    if (IsPositive(scaling.fast_turns) && scaling.fast_turns > scaling.slow_turns) {
      return absl::OkStatus();
    }
    return Refuse("high_freq_factor", scaling.fast_turns,
                  "more than low_freq_factor, such as 4 beside 1");
  }
  if (!IsPositive(scaling.beta_slow)) {
    return Refuse("beta_slow", scaling.beta_slow, "above 0, such as 1");
  }
  if (!IsPositive(scaling.beta_fast) || scaling.beta_fast < scaling.beta_slow) {
    return Refuse("beta_fast", scaling.beta_fast, "no less than beta_slow, such as 32 beside 1");
  }
  if (IsPositive(scaling.attention_factor)) return absl::OkStatus();
  return Refuse("attention_factor", scaling.attention_factor, "above 0, such as 1");
}

double YarnAttentionFactor(double factor, double mscale, double mscale_all_dim) {
  const auto of = [factor](double weight) {
    constexpr double kPerLog = 0.1;
    return factor <= 1 ? 1.0 : kPerLog * weight * std::log(factor) + 1.0;
  };
  return mscale == 0 || mscale_all_dim == 0 ? of(1) : of(mscale) / of(mscale_all_dim);
}

std::vector<double> RotaryAngles(size_t head_dim, double theta, const RotaryScaling& scaling) {
  std::vector<double> angles(head_dim / 2);
  for (size_t pair = 0; pair < angles.size(); ++pair) {
    angles[pair] =
        std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
  }
  switch (scaling.kind) {
    case RotaryScaling::Kind::kNone:
      break;
    case RotaryScaling::Kind::kLinear:
      for (double& angle : angles) angle /= scaling.factor;
      break;
    case RotaryScaling::Kind::kLlama3:
      for (double& angle : angles) angle = Llama3Angle(scaling, angle);
      break;
    case RotaryScaling::Kind::kYarn: {
      const Ramp ramp(head_dim, theta, scaling);
      for (size_t pair = 0; pair < angles.size(); ++pair) {
        const double divided = angles[pair] / scaling.factor;
        angles[pair] = ramp.At(pair) * divided + (1 - ramp.At(pair)) * angles[pair];
      }
      break;
    }
  }
  return angles;
}

}  // namespace geminid::trainer
