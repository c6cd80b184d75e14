// Every optimizer in float64, from the formulas of its paper, one tensor at a time.
#ifndef GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_ORACLE_H_
#define GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_ORACLE_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/optimizers/optimizer.h"

namespace geminid::kernels {

class Oracle {
 public:
  using Vector = std::vector<double>;

  Oracle(const FactorShape& shape, const std::vector<float>& weights)
      : shape_(shape),
        w(weights.begin(), weights.end()),
        s0(weights.size()),
        s1(weights.size()),
        travelled(weights.size()) {}

  // `g` is already scaled. The options have the step, the rate and the decay.
  void Step(const OptimizerOptions& o, const Vector& g) {
    const Vector before = w;
    switch (o.kind) {
      case OptimizerKind::kAdamW:
        AdamStep(o.adamw, g, /*coupled=*/false);
        break;
      case OptimizerKind::kAdam:
        AdamStep(o.adamw, g, /*coupled=*/true);
        break;
      case OptimizerKind::kLamb:
        LambStep(o.lamb, g);
        break;
      case OptimizerKind::kLars:
        LarsStep(o.lars, g);
        break;
      case OptimizerKind::kSgd:
        SgdStep(o.sgd, g);
        break;
      case OptimizerKind::kAdagrad:
        AdagradStep(o.adagrad, g);
        break;
      case OptimizerKind::kLion:
        LionStep(o.lion, g);
        break;
      case OptimizerKind::kAdafactor:
        AdafactorStep(o.adafactor, g);
        break;
      case OptimizerKind::kCame:
        CameStep(o.came, g);
        break;
      case OptimizerKind::kMuon:  // of a tensor that is not a matrix
        AdamStep(AdamWOf(o.muon), g, /*coupled=*/false);
        break;
    }
    for (size_t i = 0; i < w.size(); ++i) travelled[i] += std::fabs(w[i] - before[i]);
  }

 private:
  FactorShape shape_;
  Vector r_, c_, u_, s_;  // averages of Adafactor and CAME

 public:
  Vector w, s0, s1;
  Vector travelled;  // the path length of each weight, to which errors are relative

 private:
  static double Norm(const Vector& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
  }
  static double Rms(const Vector& v) { return Norm(v) / std::sqrt(static_cast<double>(v.size())); }

  void AdamStep(const AdamWOptions& o, const Vector& gradient, bool coupled) {
    const double t = static_cast<double>(o.step);
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + (coupled ? o.weight_decay * w[i] : 0);
      s0[i] = o.beta1 * s0[i] + (1 - o.beta1) * g;
      s1[i] = o.beta2 * s1[i] + (1 - o.beta2) * g * g;
      const double m = s0[i] / (1 - std::pow(o.beta1, t));
      const double v = s1[i] / (1 - std::pow(o.beta2, t));
      if (!coupled) w[i] -= o.learning_rate * o.weight_decay * w[i];
      w[i] -= o.learning_rate * m / (std::sqrt(v) + o.epsilon);
    }
  }

  void LambStep(const LambOptions& o, const Vector& gradient) {
    const double t = static_cast<double>(o.step);
    const double normaliser =
        o.max_grad_norm > 0 ? std::max(1.0, o.gradient_norm / o.max_grad_norm) : 1.0;
    Vector u(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] / normaliser + (o.decoupled ? 0 : o.weight_decay * w[i]);
      s0[i] = o.beta1 * s0[i] + (o.grad_averaging ? 1 - o.beta1 : 1) * g;
      s1[i] = o.beta2 * s1[i] + (1 - o.beta2) * g * g;
      const double m = o.bias_correction ? s0[i] / (1 - std::pow(o.beta1, t)) : s0[i];
      const double v = o.bias_correction ? s1[i] / (1 - std::pow(o.beta2, t)) : s1[i];
      u[i] = m / (std::sqrt(v) + o.epsilon) + (o.decoupled ? o.weight_decay * w[i] : 0);
    }
    double trust = 1;
    if ((o.weight_decay != 0 || o.always_adapt) && Norm(w) != 0 && Norm(u) != 0) {
      trust = Norm(w) / Norm(u);
    }
    for (size_t i = 0; i < w.size(); ++i) w[i] -= o.learning_rate * trust * u[i];
  }

  void LarsStep(const LarsOptions& o, const Vector& g) {
    double trust = 1;
    if (Norm(w) != 0 && Norm(g) != 0) {
      trust = o.trust_coefficient * Norm(w) / (Norm(g) + o.weight_decay * Norm(w) + o.epsilon);
      trust = std::min(trust, o.trust_limit);
    }
    for (size_t i = 0; i < w.size(); ++i) {
      s0[i] = o.momentum * s0[i] + trust * (g[i] + o.weight_decay * w[i]);
      w[i] -= o.learning_rate * s0[i];
    }
  }

  void SgdStep(const SgdOptions& o, const Vector& gradient) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double decay = o.weight_decay * w[i];
      const double g = gradient[i] + (o.decay_after_momentum ? 0 : decay);
      double d = g;
      if (o.momentum != 0) {
        s0[i] = o.step == 1 ? g : o.momentum * s0[i] + (1 - o.dampening) * g;
        d = o.nesterov ? g + o.momentum * s0[i] : s0[i];
      }
      w[i] -= o.learning_rate * (d + (o.decay_after_momentum ? decay : 0));
    }
  }

  void AdagradStep(const AdagradOptions& o, const Vector& gradient) {
    const double rate = o.learning_rate / (1 + static_cast<double>(o.step - 1) * o.rate_decay);
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + o.weight_decay * w[i];
      s0[i] += g * g;
      w[i] -= rate * g / (std::sqrt(s0[i]) + o.epsilon);
    }
  }

  void LionStep(const LionOptions& o, const Vector& g) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double c = o.beta1 * s0[i] + (1 - o.beta1) * g[i];
      const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
      w[i] -= o.learning_rate * (sign + o.weight_decay * w[i]);
      s0[i] = o.beta2 * s0[i] + (1 - o.beta2) * g[i];
    }
  }

  // Averages of x^2 + epsilon over rows and columns (or elements), and from them 1 / sqrt for each
  // element.
  Vector Factor(const Vector& x, double kept, double epsilon, Vector& rows, Vector& columns) const {
    const bool factored = shape_.rows > 1 && shape_.cols > 1;
    const size_t height = factored ? shape_.rows : 1, width = x.size() / height;
    rows.resize(height);
    columns.resize(width);
    Vector row_mean(height), column_mean(width), inverse(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double square = x[i] * x[i] + epsilon;
      row_mean[i / width] += square / static_cast<double>(width);
      column_mean[i % width] += square / static_cast<double>(height);
    }
    double mean = 0;
    for (size_t r = 0; r < height; ++r) {
      rows[r] = kept * rows[r] + (1 - kept) * row_mean[r];
      mean += rows[r] / static_cast<double>(height);
    }
    for (size_t c = 0; c < width; ++c) columns[c] = kept * columns[c] + (1 - kept) * column_mean[c];
    for (size_t i = 0; i < x.size(); ++i) {
      const double moment = columns[i % width] * (factored ? rows[i / width] / mean : 1);
      inverse[i] = 1 / std::sqrt(moment);
    }
    return inverse;
  }

  Vector Clipped(const Vector& g, const Vector& inverse, double threshold) const {
    Vector u(g.size());
    for (size_t i = 0; i < g.size(); ++i) u[i] = g[i] * inverse[i];
    const double divisor = std::max(1.0, Rms(u) / threshold);
    for (double& x : u) x /= divisor;
    return u;
  }

  void AdafactorStep(const AdafactorOptions& o, const Vector& g) {
    const double t = static_cast<double>(o.step);
    const double kept = 1 - std::pow(t, -o.decay_exponent);
    const Vector u = Clipped(g, Factor(g, kept, o.epsilon1, r_, c_), o.clip_threshold);
    double rate = o.learning_rate;
    if (o.relative_step) {
      rate *= std::min(o.warmup_init ? 1e-6 * t : 1e-2, 1 / std::sqrt(t));
    }
    if (o.scale_parameter) rate *= std::max(o.epsilon2, Rms(w));
    for (size_t i = 0; i < w.size(); ++i) {
      double update = u[i];
      if (o.beta1 != 0) update = s0[i] = o.beta1 * s0[i] + (1 - o.beta1) * u[i];
      w[i] -= rate * (update + o.weight_decay * w[i]);
    }
  }

  void CameStep(const CameOptions& o, const Vector& g) {
    const Vector u = Clipped(g, Factor(g, o.beta2, o.epsilon1, r_, c_), o.clip_threshold);
    Vector residual(w.size()), confidence(w.size(), 1.0);
    for (size_t i = 0; i < w.size(); ++i) {
      s0[i] = o.beta1 * s0[i] + (1 - o.beta1) * u[i];
      residual[i] = u[i] - s0[i];
    }
    if (shape_.rows > 1 && shape_.cols > 1) {
      confidence = Factor(residual, o.beta3, o.epsilon2, u_, s_);
    }
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] -= o.learning_rate * (s0[i] * confidence[i] + o.weight_decay * w[i]);
    }
  }
};

}  // namespace geminid::kernels

#endif  // GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_ORACLE_H_
