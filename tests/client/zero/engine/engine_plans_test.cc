// When the engine has a plan, and its explanation if it has none. The trainer adds gradients one by
// one, as automatic differentiation does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/client/zero/engine/engine_calls_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kUnits = 4;
constexpr uint32_t kParametersOfUnit = 4;
constexpr uint64_t kChunkBytes = kElements * sizeof(float);

// Blocks of parameters that are used together, one chunk each. Operators hold their weights until
// their gradients arrive.
class EnginePlansTest : public EngineCallsTest {
 protected:
  static std::vector<Parameter> UnitParameters() {
    std::vector<Parameter> parameters;
    for (uint32_t unit = 0; unit < kUnits; ++unit) {
      for (uint32_t p = 0; p < kParametersOfUnit; ++p) {
        parameters.push_back({.name = "unit " + std::to_string(unit) + "." + std::to_string(p),
                              .shape = {kElements},
                              .unit = unit,
                              .separate_gradient = true});
      }
    }
    return parameters;
  }

  static std::vector<ParameterId> IdsOf(uint32_t unit) {
    std::vector<ParameterId> ids;
    for (uint32_t p = 0; p < kParametersOfUnit; ++p) {
      ids.push_back(ParameterId{unit * kParametersOfUnit + p});
    }
    return ids;
  }

  absl::Status MicroBatchOfUnits() {
    const auto gradient = Ones();
    if (absl::Status status = engine_().BeginMicroBatch(); !status.ok()) return status;
    for (uint32_t unit = 0; unit < kUnits; ++unit) {
      if (absl::Status status = Forward(engine_(), IdsOf(unit)); !status.ok()) return status;
    }
    for (uint32_t unit = kUnits; unit-- > 0;) {
      auto weights = engine_().Use(Pass::kForward, IdsOf(unit));
      if (!weights.ok()) return weights.status();
      for (const ParameterId id : IdsOf(unit)) {
        const absl::Status status = engine_().AddGradient(id, std::as_bytes(std::span(gradient)),
                                                          DataType::kFloat32);
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  void MustStepUnits(int steps) {
    for (int step = 0; step < steps; ++step) {
      const absl::Status trained = MicroBatchOfUnits();
      ASSERT_TRUE(trained.ok()) << "step " << step << ": " << trained;
      ASSERT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
    }
  }

  std::vector<float> Firsts() {
    std::vector<float> firsts;
    for (uint32_t p = 0; p < kUnits * kParametersOfUnit; ++p) {
      firsts.push_back(First(ParameterId{p}));
    }
    return firsts;
  }
};

TEST_F(EnginePlansTest, FromAUnitAndOneGradientOn_ThereIsAPlanWithTheSameBits) {
  Make(UnitParameters(), SmallChunks(), 1 << 20);
  MustStepUnits(4);
  const std::vector<float> expected = Firsts();
  for (uint64_t chunks = kParametersOfUnit + 1; chunks <= 2 * kParametersOfUnit + 2; ++chunks) {
    SCOPED_TRACE(chunks);
    Make(UnitParameters(), SmallChunks(), chunks * kChunkBytes);
    MustStepUnits(4);
    const auto statistics = engine_().GetStatistics();
    EXPECT_EQ(statistics->plans_made, 1u) << statistics->plan_explanation;
    EXPECT_GT(statistics->planned_transfer_bytes, 0u);
    EXPECT_EQ(Firsts(), expected);
  }
}

TEST_F(EnginePlansTest, WhereEverythingFits_OnePlanDoes) {
  Make(UnitParameters(), SmallChunks(), 1 << 20);
  MustStepUnits(2);
  ASSERT_TRUE(engine_().GetStatistics()->everything_fits);
  // Then evaluation, a cancelled step, and units in another order follow.
  ASSERT_TRUE(engine_().Use(Pass::kEvaluate, IdsOf(2)).ok());
  MustStepUnits(2);
  ASSERT_TRUE(MicroBatchOfUnits().ok());
  ASSERT_TRUE(engine_().CancelMicroBatch().ok());
  MustStepUnits(2);
  EXPECT_EQ(engine_().GetStatistics()->plans_made, 1u);
}

}  // namespace
}  // namespace geminid::zero
