#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kernels/optimizers/optimizer.h"
#include "tests/kernels/optimizers/optimizer_cases.h"

namespace geminid::kernels {
namespace {

TEST(OptimizerOptions, Names_ParseBack) {
  std::set<std::string_view> names;
  for (const OptimizerKind kind : kAllOptimizerKinds) {
    EXPECT_EQ(ParseOptimizerKind(OptimizerName(kind)), kind);
    names.insert(OptimizerName(kind));
  }
  EXPECT_EQ(names.size(), std::size(kAllOptimizerKinds));
  EXPECT_EQ(ParseOptimizerKind("Adam"), std::nullopt);
  EXPECT_EQ(ParseOptimizerKind(""), std::nullopt);
  EXPECT_EQ(OptimizerNames(), "adamw, adam, lamb, lars, sgd, adagrad, lion, adafactor, came, muon");
}

TEST(OptimizerOptions, Defaults_Valid) {
  for (const OptimizerKind kind : kAllOptimizerKinds) {
    OptimizerOptions o;
    o.kind = kind;
    EXPECT_EQ(CheckOptimizerOptions(o), Status::kOk) << OptimizerName(kind);
  }
}

TEST(OptimizerOptions, State_AsSmallAsTheOptimizerNeeds) {
  const FactorShape matrix = {1000, 300}, vector = {1, 300}, column = {300, 1};
  OptimizerOptions o;
  const auto expect = [&](OptimizerKind kind, int arrays, uint64_t of_matrix, uint64_t of_vector) {
    o.kind = kind;
    EXPECT_EQ(StateArrays(o), arrays) << OptimizerName(kind);
    EXPECT_EQ(FactorCount(o, matrix), of_matrix) << OptimizerName(kind);
    EXPECT_EQ(FactorCount(o, vector), of_vector) << OptimizerName(kind);
    EXPECT_EQ(FactorCount(o, column), of_vector) << OptimizerName(kind);
  };
  expect(OptimizerKind::kAdamW, 2, 0, 0);
  expect(OptimizerKind::kAdam, 2, 0, 0);
  expect(OptimizerKind::kLamb, 2, 0, 0);
  expect(OptimizerKind::kLars, 1, 0, 0);
  expect(OptimizerKind::kSgd, 0, 0, 0);
  expect(OptimizerKind::kAdagrad, 1, 0, 0);
  expect(OptimizerKind::kLion, 1, 0, 0);
  expect(OptimizerKind::kAdafactor, 0, 1300, 300);
  expect(OptimizerKind::kCame, 1, 2600, 300);
  EXPECT_EQ(MatrixStateArrays(o), 1);
  expect(OptimizerKind::kMuon, 2, 0, 0);
  EXPECT_EQ(MatrixStateArrays(o), 1);
  o.sgd.momentum = 0.9;
  o.adafactor.beta1 = 0.9;
  expect(OptimizerKind::kSgd, 1, 0, 0);
  expect(OptimizerKind::kAdafactor, 1, 1300, 300);
}

constexpr double kBad[] = {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), -1e-9};

template <class Change>
void ExpectRefused(OptimizerKind kind, Change change) {
  OptimizerOptions o;
  o.kind = kind;
  change(o);
  EXPECT_EQ(CheckOptimizerOptions(o), Status::kInvalidParameter) << OptimizerName(kind);
}

// Tries every hyperparameter of every optimizer with every invalid value.
TEST(OptimizerOptions, BadHyperparameter_Refused) {
  using enum OptimizerKind;
  for (const double bad : kBad) {
    for (const auto member :
         {&AdamWOptions::learning_rate, &AdamWOptions::beta1, &AdamWOptions::beta2,
          &AdamWOptions::epsilon, &AdamWOptions::weight_decay}) {
      ExpectRefused(kAdamW, [&](OptimizerOptions& o) { o.adamw.*member = bad; });
      ExpectRefused(kAdam, [&](OptimizerOptions& o) { o.adamw.*member = bad; });
    }
    for (const auto member : {&LambOptions::learning_rate, &LambOptions::beta1, &LambOptions::beta2,
                              &LambOptions::epsilon, &LambOptions::weight_decay,
                              &LambOptions::max_grad_norm, &LambOptions::gradient_norm}) {
      ExpectRefused(kLamb, [&](OptimizerOptions& o) { o.lamb.*member = bad; });
    }
    for (const auto member :
         {&LarsOptions::learning_rate, &LarsOptions::momentum, &LarsOptions::weight_decay,
          &LarsOptions::trust_coefficient, &LarsOptions::trust_limit, &LarsOptions::epsilon}) {
      ExpectRefused(kLars, [&](OptimizerOptions& o) { o.lars.*member = bad; });
    }
    for (const auto member : {&SgdOptions::learning_rate, &SgdOptions::momentum,
                              &SgdOptions::dampening, &SgdOptions::weight_decay}) {
      ExpectRefused(kSgd, [&](OptimizerOptions& o) { o.sgd.*member = bad; });
    }
    for (const auto member : {&AdagradOptions::learning_rate, &AdagradOptions::rate_decay,
                              &AdagradOptions::epsilon, &AdagradOptions::weight_decay}) {
      ExpectRefused(kAdagrad, [&](OptimizerOptions& o) { o.adagrad.*member = bad; });
    }
    for (const auto member : {&LionOptions::learning_rate, &LionOptions::beta1, &LionOptions::beta2,
                              &LionOptions::weight_decay}) {
      ExpectRefused(kLion, [&](OptimizerOptions& o) { o.lion.*member = bad; });
    }
    for (const auto member : {&AdafactorOptions::learning_rate, &AdafactorOptions::epsilon1,
                              &AdafactorOptions::epsilon2, &AdafactorOptions::clip_threshold,
                              &AdafactorOptions::decay_exponent, &AdafactorOptions::beta1,
                              &AdafactorOptions::weight_decay}) {
      ExpectRefused(kAdafactor, [&](OptimizerOptions& o) { o.adafactor.*member = bad; });
    }
    for (const auto member : {&CameOptions::learning_rate, &CameOptions::beta1, &CameOptions::beta2,
                              &CameOptions::beta3, &CameOptions::epsilon1, &CameOptions::epsilon2,
                              &CameOptions::clip_threshold, &CameOptions::weight_decay}) {
      ExpectRefused(kCame, [&](OptimizerOptions& o) { o.came.*member = bad; });
    }
    for (const auto member :
         {&MuonOptions::learning_rate, &MuonOptions::momentum, &MuonOptions::weight_decay,
          &MuonOptions::beta1, &MuonOptions::beta2, &MuonOptions::epsilon}) {
      ExpectRefused(kMuon, [&](OptimizerOptions& o) { o.muon.*member = bad; });
    }
  }
}

TEST(OptimizerOptions, ContradictingHyperparameters_Refused) {
  using enum OptimizerKind;
  ExpectRefused(kSgd, [](OptimizerOptions& o) { o.sgd.nesterov = true; });  // needs momentum
  ExpectRefused(kSgd, [](OptimizerOptions& o) {
    o.sgd.nesterov = true;
    o.sgd.momentum = 0.9;
    o.sgd.dampening = 0.1;
  });
  ExpectRefused(kAdafactor, [](OptimizerOptions& o) {
    o.adafactor.warmup_init = true;
    o.adafactor.relative_step = false;
  });
}

TEST(OptimizerOptions, UnknownKind_Refused) {
  OptimizerOptions o;
  o.kind = static_cast<OptimizerKind>(99);
  EXPECT_EQ(CheckOptimizerOptions(o), Status::kUnsupported);
}

// The change of a tensor of 1000 equal weights in one step of LAMB or LARS.
template <class Options, class Step>
std::vector<float> Change(const Options& options, Step step, const std::vector<float>& weights,
                          const std::vector<float>& gradient) {
  ParameterStore store(WeightForm::kFloat, weights.size());
  store.SetMasters(weights);
  EXPECT_EQ(
      step(options, store.At().View(), GradientArray(gradient.data()), weights.size(), store.At()),
      Status::kOk);
  std::vector<float> change = store.Masters();
  for (size_t i = 0; i < change.size(); ++i) change[i] -= weights[i];
  return change;
}

double NormOf(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

// Layer-wise adaptation: the step is a fraction of the weights' norm, whatever the gradient's size.
TEST(LayerwiseAdaptation, GradientTimesAnything_SameStep) {
  constexpr size_t kCount = 1000;
  std::mt19937 random(51);
  const std::vector<float> weights = RandomValues(random, kCount, 0.05);
  const std::vector<float> gradient = RandomValues(random, kCount, 1.0);
  const LambOptions lamb = {.learning_rate = 0.01,
                            .epsilon = 1e-30,
                            .weight_decay = 0,
                            .always_adapt = true,
                            .max_grad_norm = 0};
  const LarsOptions lars = {.learning_rate = 0.5};
  for (const float factor : {1e-4F, 3.0F, 1e4F}) {
    std::vector<float> scaled = gradient;
    for (float& g : scaled) g *= factor;
    const auto expect_same = [&](const std::vector<float>& a, const std::vector<float>& b) {
      std::vector<float> difference = a;
      for (size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
      EXPECT_LT(NormOf(difference), 1e-4 * NormOf(a)) << factor;
    };
    expect_same(Change(lamb, LambStep, weights, gradient), Change(lamb, LambStep, weights, scaled));
    expect_same(Change(lars, LarsStep, weights, gradient), Change(lars, LarsStep, weights, scaled));
  }
  EXPECT_NEAR(NormOf(Change(lamb, LambStep, weights, gradient)), 0.01 * NormOf(weights), 1e-5);
  EXPECT_NEAR(NormOf(Change(lars, LarsStep, weights, gradient)), 0.5 * 0.001 * NormOf(weights),
              1e-5);
}

TEST(LayerwiseAdaptation, ZeroNorms_TrustOfOne) {
  const LambOptions lamb;
  const LarsOptions lars;
  EXPECT_EQ(LambTrust(lamb, {0, 4}), 1);
  EXPECT_EQ(LambTrust(lamb, {4, 0}), 1);
  EXPECT_EQ(LambTrust(lamb, {4, 16}), 0.5);
  EXPECT_EQ(LarsTrust(lars, {0, 4}), 1);
  EXPECT_EQ(LarsTrust(lars, {4, 0}), 1);
  EXPECT_EQ(LarsTrust(lars, {4, 16}), 0.0005);
  EXPECT_EQ(LarsTrust(lars, {4, 1e-30}), 50);  // the limit
  LambOptions without_decay;
  without_decay.weight_decay = 0;
  EXPECT_EQ(LambTrust(without_decay, {4, 16}), 1);
  without_decay.always_adapt = true;
  EXPECT_EQ(LambTrust(without_decay, {4, 16}), 0.5);
}

// The root mean square of the step is the rate. The rate is the given one, or follows by the
// paper's formula from the root mean square of the weights.
TEST(Factored, StepSize_AsGiven) {
  constexpr size_t kRows = 20, kCols = 50, kCount = kRows * kCols;
  const FactorShape shape = {kRows, kCols};
  const std::vector<float> weights(kCount, 2.0F), gradient(kCount, 0.25F);
  const auto rms_of_step = [&](const AdafactorOptions& o) {
    ParameterStore store(WeightForm::kFloat, kCount);
    store.SetMasters(weights);
    std::vector<float> factors(shape.Count()), scales(shape.Count());
    std::vector<double> sums(shape.Count() + shape.ColumnSpace());
    EXPECT_EQ(
        AdafactorStep(o, shape, store.At().View(), factors.data(), GradientArray(gradient.data()),
                      store.At(), factors.data(), sums.data(), scales.data()),
        Status::kOk);
    return (weights[0] - store.Masters()[0]);
  };
  AdafactorOptions given = {
      .learning_rate = 0.125, .relative_step = false, .scale_parameter = false};
  EXPECT_NEAR(rms_of_step(given), 0.125, 1e-6);
  given.scale_parameter = true;  // times RMS(w) = 2
  EXPECT_NEAR(rms_of_step(given), 0.25, 1e-6);
  AdafactorOptions relative;  // min(1e-2, 1/sqrt(t)) RMS(w)
  EXPECT_NEAR(rms_of_step(relative), 0.02, 1e-6);
  relative.learning_rate = 0.5;
  EXPECT_NEAR(rms_of_step(relative), 0.01, 1e-6);
  relative = {.warmup_init = true, .step = 1000};
  EXPECT_NEAR(rms_of_step(relative), 1e-3 * 2, 1e-6);
  relative = {.step = 1'000'000};
  EXPECT_NEAR(rms_of_step(relative), 1e-3 * 2, 1e-6);
}

// With beta1 = 0 the residual is 0. CAME's confidence is then 1 / sqrt(epsilon2 (1 - beta3)), and
// its step is the given rate times the update times the confidence.
TEST(Factored, CameStepOfVector_GivenRate) {
  constexpr size_t kCount = 64;
  const FactorShape shape = {1, kCount};
  const std::vector<float> weights(kCount, 1.0F), gradient(kCount, -3.0F);
  ParameterStore store(WeightForm::kFloat, kCount);
  store.SetMasters(weights);
  std::vector<float> factors(CameFactorCount(shape)), scales(CameFactorCount(shape));
  std::vector<double> sums(shape.Count() + shape.ColumnSpace());
  const CameOptions o = {.learning_rate = 0.125, .beta1 = 0};
  ASSERT_EQ(CameStep(o, shape, store.At().View(), factors.data(), GradientArray(gradient.data()),
                     store.At(), factors.data(), sums.data(), scales.data()),
            Status::kOk);
  for (const float w : store.Masters()) EXPECT_NEAR(w, 1.125, 1e-6);
}

// A column's sum by the definition in kernels/optimizers/step/column_chunks.h, for a part that
// begins and ends within rows.
double ColumnSumOf(const std::vector<float>& gradient, const FactorShape& shape, uint64_t offset,
                   uint64_t count, uint64_t column, double sum) {
  const uint64_t first = offset / shape.cols, last = (offset + count - 1) / shape.cols;
  const uint64_t rows = last - first + 1;
  const uint64_t chunk = rows <= 64 * 64 ? 64 : (rows + 63) / 64;
  for (uint64_t begin = first; begin <= last; begin += chunk) {
    double of_chunk = 0;
    for (uint64_t row = begin; row < begin + chunk && row <= last; ++row) {
      const uint64_t at = row * shape.cols + column;
      if (at < offset || at >= offset + count) continue;
      of_chunk += static_cast<double>(gradient[at - offset]) * gradient[at - offset];
    }
    sum += of_chunk;
  }
  return sum;
}

TEST(Factored, ColumnSums_AreOfChunksOfRowsInOrder) {
  std::mt19937 random(41);
  for (const uint64_t rows : {2u, 64u, 65u, 200u, 4096u, 4100u}) {
    const FactorShape shape = {rows, 5};
    const std::vector<std::pair<uint64_t, uint64_t>> parts = {
        {0, shape.Elements()}, {3, shape.Elements() - 5}, {shape.Elements() / 2, 4}};
    for (const auto& [offset, count] : parts) {
      const std::vector<float> gradient = RandomValues(random, count, 1.0);
      std::vector<double> sums(shape.Count(), 0.25), space(shape.ColumnSpace(), -1.0);
      double in_order[5] = {0.25, 0.25, 0.25, 0.25, 0.25};
      for (uint64_t i = 0; i < count; ++i) {
        in_order[(offset + i) % 5] += static_cast<double>(gradient[i]) * gradient[i];
      }
      ASSERT_EQ(CameAddSquares({}, shape, offset, GradientArray(gradient.data()), count,
                               sums.data(), space.data()),
                Status::kOk);
      bool differs = false;
      for (uint64_t column = 0; column < 5; ++column) {
        const double sum = sums[rows + column];
        EXPECT_EQ(sum, ColumnSumOf(gradient, shape, offset, count, column, 0.25)) << rows;
        EXPECT_NEAR(sum, in_order[column], 1e-13 * sum);
        differs = differs || sum != in_order[column];
      }
      EXPECT_TRUE(differs || count < 1000) << "rows are added in chunks, not one by one";
    }
  }
}

TEST(Factored, BadArguments_RefusedBeforeWriting) {
  const FactorShape shape = {4, 5};
  std::vector<float> gradient(20, 1.0F), factors(2 * shape.Count()), scales(2 * shape.Count());
  std::vector<double> sums(shape.Count() + shape.ColumnSpace());
  ParameterStore store(WeightForm::kFloat, 20), untouched(WeightForm::kFloat, 20);
  const auto run = [&](const FactorShape& s, const float* old_factors, double* work, float* scale) {
    const Status a =
        AdafactorStep({}, s, store.At().View(), old_factors, GradientArray(gradient.data()),
                      store.At(), factors.data(), work, scale);
    const Status c = CameStep({}, s, store.At().View(), old_factors, GradientArray(gradient.data()),
                              store.At(), factors.data(), work, scale);
    EXPECT_EQ(a, c);
    EXPECT_TRUE(store.SameAs(untouched));
    EXPECT_EQ(factors, std::vector<float>(factors.size(), 0.0F));
    return a;
  };
  EXPECT_EQ(run({0, 5}, factors.data(), sums.data(), scales.data()), Status::kInvalidShape);
  EXPECT_EQ(run(shape, nullptr, sums.data(), scales.data()), Status::kNullPointer);
  EXPECT_EQ(run(shape, factors.data(), nullptr, scales.data()), Status::kNullPointer);
  EXPECT_EQ(run(shape, factors.data(), sums.data(), nullptr), Status::kNullPointer);
  EXPECT_EQ(run(shape, factors.data() + 1, sums.data(), scales.data()), Status::kOverlap);
  gradient[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run(shape, factors.data(), sums.data(), scales.data()), Status::kInvalidParameter);
  AdafactorNorms norms;
  EXPECT_EQ(CameAddSquares({}, shape, 0, GradientArray(gradient.data()), 20, sums.data(), nullptr),
            Status::kNullPointer);
  EXPECT_EQ(AdafactorAddSquares({}, shape, 10, store.At().View(), GradientArray(gradient.data()),
                                11, sums.data(), sums.data() + shape.Count(), &norms),
            Status::kInvalidShape);
}

}  // namespace
}  // namespace geminid::kernels
