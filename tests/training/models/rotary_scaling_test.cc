#include "training/models/rotary_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace geminid::trainer {
namespace {

using Kind = RotaryScaling::Kind;
using testing::HasSubstr;

// The angles of the named pairs, from transformers' formulas in float64.
void ExpectAngles(const std::vector<double>& angles,
                  const std::vector<std::pair<size_t, double>>& expected) {
  for (const auto& [pair, angle] : expected) {
    EXPECT_NEAR(angles.at(pair), angle, 1e-13 * angle) << pair;
  }
}

TEST(RotaryAngles, Unscaled_AreThePowersOfTheta) {
  const std::vector<double> angles = RotaryAngles(8, 10000, {});
  ASSERT_EQ(angles.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(angles[i], std::pow(10000.0, -2.0 * static_cast<double>(i) / 8.0));
  }
}

TEST(RotaryAngles, ScaledLinearly_AreDivided) {
  const RotaryScaling scaling = {.kind = Kind::kLinear, .factor = 4};
  const std::vector<double> plain = RotaryAngles(8, 10000, {});
  const std::vector<double> angles = RotaryAngles(8, 10000, scaling);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(angles[i], plain[i] / 4);
}

// The angles of LLaMA 3.1 8B: fast pairs, three pairs of the ramp, and slow pairs.
TEST(RotaryAngles, OfLlama3_AreTransformers) {
  const RotaryScaling scaling = {.kind = Kind::kLlama3,
                                 .factor = 8,
                                 .original_positions = 8192,
                                 .slow_turns = 1,
                                 .fast_turns = 4};
  ExpectAngles(RotaryAngles(128, 500000, scaling), {{0, 1.0},
                                                    {20, 0.016560440080994446},
                                                    {28, 0.003211445994752591},
                                                    {29, 0.002166570763503359},
                                                    {32, 0.0005248461609929547},
                                                    {34, 0.0001785078127679964},
                                                    {35, 9.556212353964683e-05},
                                                    {36, 7.78465527393245e-05},
                                                    {63, 3.068925988914511e-07}});
}

// The angles of Qwen3 8B for four times its positions; the ramp is from pair 23 to 40, or
// unrounded.
TEST(RotaryAngles, OfYarn_AreTransformers) {
  RotaryScaling scaling = {.kind = Kind::kYarn, .factor = 4, .original_positions = 32768};
  ExpectAngles(RotaryAngles(128, 1e6, scaling), {{0, 1.0},
                                                 {23, 0.006978305848598663},
                                                 {24, 0.005375321490790102},
                                                 {30, 0.0010643609812470017},
                                                 {39, 6.490394320837028e-05},
                                                 {40, 4.445698525097307e-05},
                                                 {63, 3.102344401879299e-07}});
  scaling.rounds_ramp = false;
  ExpectAngles(RotaryAngles(128, 1e6, scaling), {{23, 0.006978305848598663},
                                                 {24, 0.0055172704751341225},
                                                 {39, 6.187806812450695e-05},
                                                 {40, 4.445698525097307e-05}});
}

TEST(YarnAttentionFactor, OfBothWeightsOrNeither_IsTransformers) {
  EXPECT_DOUBLE_EQ(YarnAttentionFactor(4, 0, 0), 1.138629436111989);
  EXPECT_DOUBLE_EQ(YarnAttentionFactor(40, 1, 0), 1.3688879454113936);
  EXPECT_DOUBLE_EQ(YarnAttentionFactor(40, 0.707, 1.5), 0.8116769910542814);
  EXPECT_EQ(YarnAttentionFactor(1, 0, 0), 1);
}

TEST(ValidateRotaryScaling, OfNumbersThatCannotBe_NamesThem) {
  const auto complaint = [](const RotaryScaling& scaling) {
    return std::string(Validate(scaling).message());
  };
  EXPECT_EQ(complaint({}), "");
  EXPECT_THAT(complaint({.kind = Kind::kLinear, .factor = 0}), HasSubstr("factor"));
  EXPECT_THAT(complaint({.kind = Kind::kYarn, .factor = 2}),
              HasSubstr("original positions of scaled rotary positions is 0"));
  RotaryScaling scaling = {.kind = Kind::kLlama3, .factor = 8, .original_positions = 8192};
  EXPECT_EQ(complaint(scaling), "");
  scaling.fast_turns = scaling.slow_turns;
  EXPECT_THAT(complaint(scaling), HasSubstr("high_freq_factor of scaled rotary positions is 1"));
  scaling.slow_turns = 0;
  EXPECT_THAT(complaint(scaling), HasSubstr("low_freq_factor"));
  scaling = {.kind = Kind::kYarn, .factor = 4, .original_positions = 8192};
  EXPECT_EQ(complaint(scaling), "");
  scaling.beta_fast = 0.5;
  EXPECT_THAT(complaint(scaling), HasSubstr("beta_fast"));
  scaling.beta_slow = 0;
  EXPECT_THAT(complaint(scaling), HasSubstr("beta_slow"));
  scaling = {.kind = Kind::kYarn, .factor = 4, .original_positions = 8192, .attention_factor = -1};
  EXPECT_THAT(complaint(scaling), HasSubstr("attention_factor"));
}

}  // namespace
}  // namespace geminid::trainer
