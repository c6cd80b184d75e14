#include "tests/daemon/planner/bound/linear_program.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "daemon/planner/bound/byte_bound.h"
#include "daemon/planner/retention/retention.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"
#include "tests/daemon/planner/transformers.h"

namespace geminid::planner {
namespace {

// The solver works in doubles.
constexpr double kTolerance = 1e-6;

Problem MakeProblem(const RandomShape& shape, bool weights_change, std::mt19937_64& random) {
  PlannerOptions options = TestOptions();
  options.weights_change_between_iterations = weights_change;
  absl::StatusOr<Problem> problem = BuildProblem(RandomTrace(shape, random), options);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

RandomShape Shape(std::mt19937_64& random) {
  return {.num_chunks = static_cast<int>(Draw(random, 2, 12)),
          .num_moments = static_cast<int>(Draw(random, 2, 30)),
          .min_size_bytes = 1,
          .max_size_bytes = 9,
          .max_uses_per_moment = static_cast<int>(Draw(random, 1, 3)),
          .invalidate = Draw(random, 0, 1) == 0};
}

double Bound(const Problem& problem) { return static_cast<double>(LowerBoundBytes(problem)); }

// A plan moves whole bytes, so the program's value may be rounded up.
double RoundedUp(double bytes) { return std::ceil(bytes - kTolerance); }

TEST(LowerBoundBytes, EqualSizes_EqualsTheProgramWhichHasAWholeSolution) {
  std::mt19937_64 random(41);
  for (int i = 0; i < 300; ++i) {
    RandomShape shape = Shape(random);
    shape.min_size_bytes = shape.max_size_bytes = 7;
    const Problem problem = MakeProblem(shape, /*weights_change=*/true, random);
    const double fractional = ProgramLeastBytes(problem, Gaps::kFractional);
    ASSERT_NEAR(Bound(problem), fractional, kTolerance) << "instance " << i;
    ASSERT_NEAR(ProgramLeastBytes(problem, Gaps::kWhole), fractional, kTolerance);
  }
}

TEST(LowerBoundBytes, UnequalSizesMovedWhole_EqualsTheProgram) {
  std::mt19937_64 random(42);
  for (int i = 0; i < 300; ++i) {
    const Problem problem = MakeProblem(Shape(random), /*weights_change=*/true, random);
    ASSERT_EQ(Bound(problem), RoundedUp(ProgramLeastBytes(problem, Gaps::kFractional)))
        << "instance " << i;
  }
}

// Bytes have different prices here. The bound takes each price level alone, the program takes all
// at once.
TEST(LowerBoundBytes, MixedPrices_IsBelowTheProgramAndNear) {
  std::mt19937_64 random(43);
  double sum = 0;
  double worst = 1;
  constexpr int kInstances = 300;
  for (int i = 0; i < kInstances; ++i) {
    RandomShape shape = Shape(random);
    shape.vary_transfer = true;
    const Problem problem = MakeProblem(shape, /*weights_change=*/true, random);
    const double program = ProgramLeastBytes(problem, Gaps::kFractional);
    ASSERT_LE(Bound(problem), RoundedUp(program)) << "instance " << i;
    const double ratio = program > 0 ? std::min(1.0, Bound(problem) / program) : 1;
    sum += ratio;
    worst = std::min(worst, ratio);
  }
  std::printf("mixed prices: bound / program mean %.4f, worst %.4f\n", sum / kInstances, worst);
  EXPECT_GT(sum / kInstances, 0.97);
}

// The program finds one iteration that repeats. The bound holds for any sequence of iterations.
TEST(LowerBoundBytes, OverTheBoundary_IsBelowTheProgramAndNear) {
  std::mt19937_64 random(44);
  int equal = 0;
  constexpr int kInstances = 300;
  for (int i = 0; i < kInstances; ++i) {
    const Problem problem = MakeProblem(Shape(random), /*weights_change=*/false, random);
    const double program = RoundedUp(ProgramLeastBytes(problem, Gaps::kFractional));
    ASSERT_LE(Bound(problem), program) << "instance " << i;
    if (Bound(problem) == program) ++equal;
  }
  std::printf("over the boundary: bound = program in %d of %d\n", equal, kInstances);
  EXPECT_GE(equal, kInstances * 9 / 10);
}

// The chunks of real models are aligned, so their bytes differ a little in price.
TEST(LowerBoundBytes, PublishedModels_EqualTheProgramToAMillionth) {
  for (const Transformer& model : PublishedTransformers()) {
    const Trace trace = TransformerTrace(model, {.device_bytes = 6000000000});
    const absl::StatusOr<Problem> problem = BuildProblem(trace, PlannerOptions());
    ASSERT_TRUE(problem.ok()) << problem.status();
    const double program = ProgramLeastBytes(*problem, Gaps::kFractional);
    EXPECT_NEAR(Bound(*problem) / program, 1, 1e-6) << model.name;
    EXPECT_LE(Bound(*problem), program * (1 + 1e-9)) << model.name;
  }
}

}  // namespace
}  // namespace geminid::planner
