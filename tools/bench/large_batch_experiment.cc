#include "tools/bench/large_batch_experiment.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <span>

#include "kernels/optimizers/sharded_step.h"

namespace geminid::bench {
namespace {

constexpr size_t kInputs = 16;
constexpr size_t kHidden = 32;
constexpr size_t kClasses = 4;

// The parts of one flat array: W1 (hidden x inputs), b1, W2 (classes x hidden), b2.
constexpr size_t kB1 = kHidden * kInputs;
constexpr size_t kW2 = kB1 + kHidden;
constexpr size_t kB2 = kW2 + kClasses * kHidden;
constexpr size_t kWeights = kB2 + kClasses;

// In [0, 1), the same everywhere; std's distributions differ between libraries.
double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// Uniform of variance `spread`^2.
float Centred(std::mt19937_64& random, double spread) {
  return static_cast<float>((2.0 * Uniform(random) - 1.0) * std::sqrt(3.0) * spread);
}

std::vector<float> InitialWeights(std::mt19937_64& random, double gain) {
  std::vector<float> w(kWeights, 0.0F);
  const double in = gain * std::sqrt(2.0 / kInputs), hidden = gain * std::sqrt(2.0 / kHidden);
  for (size_t i = 0; i < kB1; ++i) w[i] = Centred(random, in);
  for (size_t i = kW2; i < kB2; ++i) w[i] = Centred(random, hidden);
  return w;
}

struct Activations {
  float hidden[kHidden];
  float probability[kClasses];
};

void Forward(const std::vector<float>& w, const float* x, Activations* a) {
  for (size_t h = 0; h < kHidden; ++h) {
    float sum = w[kB1 + h];
    for (size_t i = 0; i < kInputs; ++i) sum += w[h * kInputs + i] * x[i];
    a->hidden[h] = std::max(sum, 0.0F);
  }
  float most = -INFINITY, total = 0;
  for (size_t c = 0; c < kClasses; ++c) {
    float sum = w[kB2 + c];
    for (size_t h = 0; h < kHidden; ++h) sum += w[kW2 + c * kHidden + h] * a->hidden[h];
    a->probability[c] = sum;
    most = std::max(most, sum);
  }
  for (float& p : a->probability) total += p = std::exp(p - most);
  for (float& p : a->probability) p /= total;
}

void AddGradient(const std::vector<float>& w, const float* x, size_t label, const Activations& a,
                 std::vector<float>* gradient) {
  float* g = gradient->data();
  float back[kHidden] = {};
  for (size_t c = 0; c < kClasses; ++c) {
    const float d = a.probability[c] - (c == label ? 1.0F : 0.0F);
    g[kB2 + c] += d;
    for (size_t h = 0; h < kHidden; ++h) {
      g[kW2 + c * kHidden + h] += d * a.hidden[h];
      back[h] += d * w[kW2 + c * kHidden + h];
    }
  }
  for (size_t h = 0; h < kHidden; ++h) {
    if (a.hidden[h] <= 0) continue;
    g[kB1 + h] += back[h];
    for (size_t i = 0; i < kInputs; ++i) g[h * kInputs + i] += back[h] * x[i];
  }
}

double MeanLoss(const LargeBatchProblem& problem, const std::vector<float>& w) {
  double sum = 0;
  Activations a;
  for (size_t s = 0; s < problem.samples(); ++s) {
    Forward(w, &problem.inputs[s * kInputs], &a);
    sum -= std::log(std::max(a.probability[problem.classes[s]], 1e-30F));
  }
  return sum / static_cast<double>(problem.samples());
}

std::vector<kernels::TensorOptions> Tensors() {
  std::vector<kernels::TensorOptions> tensors(4);
  tensors[0].shape = {kHidden, kInputs};
  tensors[1].shape = {1, kHidden};
  tensors[2].shape = {kClasses, kHidden};
  tensors[3].shape = {1, kClasses};
  tensors[1].weight_decay = tensors[3].weight_decay = 0.0;
  return tensors;
}

// The network's weights and the optimizer's state, stepped in place.
class Student {
 public:
  Student(const kernels::OptimizerOptions& options, std::vector<float> weights)
      : step_(options, Tensors()),
        weights_(std::move(weights)),
        state0_(kWeights, 0.0F),
        state1_(kWeights, 0.0F),
        factors_(step_.FactorTotal(), 0.0F) {}

  const std::vector<float>& weights() const { return weights_; }

  bool Step(const kernels::StepScalars& scalars, const std::vector<float>& gradient) {
    constexpr size_t kBegin[] = {0, kB1, kW2, kB2, kWeights};
    std::vector<kernels::Segment> segments(4);
    std::vector<kernels::ParameterArrays> arrays(4);
    for (uint32_t t = 0; t < 4; ++t) {
      arrays[t].master = weights_.data() + kBegin[t];
      arrays[t].state[0] = state0_.data() + kBegin[t];
      arrays[t].state[1] = state1_.data() + kBegin[t];
      segments[t] = {t, 0, kBegin[t + 1] - kBegin[t], arrays[t].View(),
                     kernels::GradientArray(gradient.data() + kBegin[t])};
    }
    const auto alone = [](std::span<double>) { return true; };
    auto status = step_.Prepare(scalars, segments, factors_.data(), alone, factors_.data());
    for (uint32_t t = 0; t < 4 && status == kernels::Status::kOk; ++t) {
      status = step_.Apply(segments[t], arrays[t]);
    }
    return status == kernels::Status::kOk;
  }

 private:
  kernels::ShardedStep step_;
  std::vector<float> weights_, state0_, state1_, factors_;
};

// Linear warm-up, then half a cosine.
double RateAt(const LargeBatchRun& run, double peak, size_t step, size_t steps) {
  const double warm_up = std::max(1.0, std::round(run.warm_up * static_cast<double>(steps)));
  const auto at = static_cast<double>(step);
  if (at <= warm_up) return peak * at / warm_up;
  const double through = (at - warm_up) / (static_cast<double>(steps) - warm_up + 1.0);
  return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * through));
}

double Norm(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

std::vector<uint32_t> Shuffled(size_t count, std::mt19937_64& random) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

}  // namespace

LargeBatchProblem::LargeBatchProblem(size_t samples, uint64_t seed)
    : inputs(samples * kInputs), classes(samples) {
  std::mt19937_64 random(seed);
  const std::vector<float> teacher = InitialWeights(random, 1.5);
  for (float& x : inputs) x = Centred(random, 1.0);
  for (size_t s = 0; s < samples; ++s) {
    Activations a;
    Forward(teacher, &inputs[s * kInputs], &a);
    double rest = Uniform(random);
    uint8_t label = 0;
    while (label + 1U < kClasses && rest >= a.probability[label]) rest -= a.probability[label++];
    classes[s] = label;
  }
  floor = MeanLoss(*this, teacher);
}

LargeBatchResult Train(const LargeBatchProblem& problem, const LargeBatchRun& run) {
  std::mt19937_64 random(7);
  Student student(run.optimizer, InitialWeights(random, 1.0));
  const size_t per_epoch = problem.samples() / run.batch;
  LargeBatchResult result;
  result.steps = per_epoch * run.epochs;
  result.learning_rate = kernels::LearningRate(run.optimizer);
  result.first_loss = MeanLoss(problem, student.weights());
  result.curve.push_back({0, result.first_loss});
  size_t step = 0;
  for (size_t epoch = 0; epoch < run.epochs; ++epoch) {
    const std::vector<uint32_t> order = Shuffled(problem.samples(), random);
    for (size_t b = 0; b < per_epoch; ++b) {
      std::vector<float> gradient(kWeights, 0.0F);
      for (size_t s = b * run.batch; s < (b + 1) * run.batch; ++s) {
        Activations a;
        const float* x = &problem.inputs[order[s] * kInputs];
        Forward(student.weights(), x, &a);
        AddGradient(student.weights(), x, problem.classes[order[s]], a, &gradient);
      }
      kernels::StepScalars scalars;
      scalars.step = ++step;
      scalars.learning_rate = RateAt(run, result.learning_rate, step, result.steps);
      scalars.grad_scale = 1.0 / static_cast<double>(run.batch);
      scalars.gradient_norm = Norm(gradient) * scalars.grad_scale;
      if (!student.Step(scalars, gradient)) return {};
    }
    result.last_loss = MeanLoss(problem, student.weights());
    result.curve.push_back({(epoch + 1) * per_epoch * run.batch, result.last_loss});
  }
  return result;
}

LargeBatchRun LambRun(size_t batch, size_t small_batch, size_t epochs) {
  LargeBatchRun run;
  const double times = static_cast<double>(batch) / static_cast<double>(small_batch);
  run.optimizer.kind = kernels::OptimizerKind::kLamb;
  run.optimizer.lamb.learning_rate = 0.015 * std::sqrt(times);
  run.batch = batch;
  run.epochs = epochs;
  return run;
}

LargeBatchRun LarsRun(size_t batch, size_t small_batch, size_t epochs) {
  LargeBatchRun run;
  const double times = static_cast<double>(batch) / static_cast<double>(small_batch);
  run.optimizer.kind = kernels::OptimizerKind::kLars;
  // Of the order of 1: biases start at 0 and are not adapted until they are nonzero, so the rate
  // must suit an unadapted step too.
  run.optimizer.lars.trust_coefficient = 1.0;
  run.optimizer.lars.learning_rate = 0.002 * times;
  run.batch = batch;
  run.epochs = epochs;
  return run;
}

}  // namespace geminid::bench
