// Compares every optimizer with float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/optimizers/sharded_step.h"
#include "tests/kernels/optimizers/optimizer_cases.h"
#include "tests/kernels/optimizers/optimizer_oracle.h"
#include "tests/kernels/optimizers/optimizer_world.h"

namespace geminid::kernels {
namespace {

constexpr int kSteps = 6;

OptimizerOptions OracleOptions(OptimizerOptions o, const StepScalars& scalars,
                               const TensorOptions& tensor) {
  const auto set = [&](auto& options) {
    options.step = scalars.step;
    options.learning_rate = scalars.learning_rate * tensor.learning_rate_scale;
    if (tensor.weight_decay) options.weight_decay = *tensor.weight_decay;
  };
  set(o.adamw);
  set(o.lamb);
  set(o.lars);
  set(o.sgd);
  set(o.adagrad);
  set(o.lion);
  set(o.adafactor);
  set(o.came);
  set(o.muon);
  o.lamb.gradient_norm = scalars.gradient_norm;
  return o;
}

std::vector<Oracle> OraclesOf(const FlatModel& model, const std::vector<float>& weights) {
  std::vector<Oracle> oracles;
  for (size_t t = 0; t < model.tensors.size(); ++t) {
    oracles.emplace_back(
        model.tensors[t].shape,
        std::vector<float>(weights.begin() + model.Begin(t), weights.begin() + model.Begin(t + 1)));
  }
  return oracles;
}

// Trains for several steps in `form` and in float64, and compares the masters.
void ExpectCloseToOracle(const OptimizerCase& c, WeightForm form, double tolerance) {
  const FlatModel model = FlatModel::Small();
  std::mt19937 random(21);
  TrainedModel now(model, c.options, form), next(model, c.options, form);
  now.store.SetMasters(RandomValues(random, model.Elements(), 0.05));
  std::vector<Oracle> oracles = OraclesOf(model, now.store.Masters());
  for (int i = 1; i <= kSteps; ++i) {
    const StepScalars scalars = ScalarsOf(c, i);
    const std::vector<float> gradient = RandomGradient(random, model.Elements());
    WorldStep(model, c.options, scalars, OneRank(model), now, gradient.data(), next);
    std::swap(now, next);
    for (size_t t = 0; t < oracles.size(); ++t) {
      std::vector<double> g(model.tensors[t].shape.Elements());
      for (size_t k = 0; k < g.size(); ++k) g[k] = gradient[model.Begin(t) + k] / 1024.0;
      oracles[t].Step(OracleOptions(c.options, scalars, model.tensors[t]), g);
    }
  }
  const std::vector<float> masters = now.store.Masters();
  for (size_t t = 0; t < oracles.size(); ++t) {
    for (size_t k = 0; k < oracles[t].w.size(); ++k) {
      const double scale = std::fabs(oracles[t].w[k]) + oracles[t].travelled[k];
      ASSERT_NEAR(masters[model.Begin(t) + k], oracles[t].w[k], tolerance * scale)
          << "tensor " << t << " element " << k;
    }
  }
}

TEST(Optimizers, SeveralSteps_WithinOneMillionthOfFloat64) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    ExpectCloseToOracle(c, WeightForm::kFloat, 1e-6);
    ExpectCloseToOracle(c, WeightForm::kSplit, 1e-6);
  }
}

// The check above must be able to fail: it finds a rate that is off by a thousandth.
TEST(Optimizers, WrongRate_FoundByFloat64) {
  const FlatModel model = FlatModel::Small();
  for (const OptimizerCase& c : AllCases()) {
    std::mt19937 random(22);
    TrainedModel now(model, c.options, WeightForm::kFloat);
    TrainedModel next(model, c.options, WeightForm::kFloat);
    now.store.SetMasters(RandomValues(random, model.Elements(), 0.05));
    std::vector<Oracle> oracles = OraclesOf(model, now.store.Masters());
    StepScalars scalars = ScalarsOf(c, 1);
    const std::vector<float> gradient = RandomGradient(random, model.Elements());
    std::vector<double> g(model.tensors[0].shape.Elements());
    for (size_t k = 0; k < g.size(); ++k) g[k] = gradient[k] / 1024.0;
    oracles[0].Step(OracleOptions(c.options, scalars, model.tensors[0]), g);
    scalars.learning_rate *= 1.001;
    WorldStep(model, c.options, scalars, OneRank(model), now, gradient.data(), next);
    const std::vector<float> masters = next.store.Masters();
    double worst = 0;
    for (size_t k = 0; k < g.size(); ++k) {
      const double scale = std::fabs(oracles[0].w[k]) + oracles[0].travelled[k];
      worst = std::max(worst, std::fabs(masters[k] - oracles[0].w[k]) / scale);
    }
    EXPECT_GT(worst, 3e-6) << c.name;
  }
}

}  // namespace
}  // namespace geminid::kernels
