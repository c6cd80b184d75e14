#include "training/models/initialization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace geminid::trainer {
namespace {

std::vector<float> Values(const ParameterSpec& spec, uint64_t seed) {
  std::vector<float> values(spec.elements());
  Fill(spec, seed, 0, values);
  return values;
}

const ParameterSpec kNormal = {
    .name = "w", .shape = {500, 201}, .init = ParameterSpec::Init::kNormal, .deviation = 0.02};

TEST(Fill, InPieces_GivesTheValuesOfTheWhole) {
  const std::vector<float> whole = Values(kNormal, 7);
  std::vector<float> pieces(whole.size());
  const size_t cuts[] = {0, 1, 2, 1001, 50'000, whole.size()};
  for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
    Fill(kNormal, 7, cuts[i], std::span(pieces).subspan(cuts[i], cuts[i + 1] - cuts[i]));
  }
  EXPECT_EQ(pieces, whole);
}

TEST(Fill, OfNormal_HasTheMomentsOfTheDistribution) {
  const std::vector<float> values = Values(kNormal, 7);
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0, fourth = 0, lag = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double z = values[i] / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    lag += z * values[(i + 1) % values.size()] / 0.02;
  }
  const double error = 1 / std::sqrt(count);  // of one standard deviation
  EXPECT_NEAR(sum / count, 0, 4 * error);
  EXPECT_NEAR(squares / count, 1, 4 * std::sqrt(2.0) * error);
  EXPECT_NEAR(fourth / count, 3, 4 * std::sqrt(96.0) * error);
  EXPECT_NEAR(lag / count, 0, 4 * error);
}

TEST(Fill, WithAnotherSeedOrName_GivesOtherValues) {
  ParameterSpec other = kNormal;
  other.name = "v";
  const std::vector<float> values = Values(kNormal, 7);
  EXPECT_NE(Values(kNormal, 8), values);
  EXPECT_NE(Values(other, 7), values);
}

TEST(MakeParameters, OfGpt2_ScalesResidualLayersAndDecaysMatricesOnly) {
  const ModelParameters model = MakeParameters(*FindPreset("gpt2-small"));
  std::set<std::string> names;
  for (const ParameterSpec& spec : model.specs) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    const bool residual = spec.name.find("c_proj.weight") != std::string::npos;
    if (spec.init == ParameterSpec::Init::kNormal) {
      EXPECT_TRUE(spec.decay()) << spec.name;
      EXPECT_DOUBLE_EQ(spec.deviation, residual ? 0.02 / std::sqrt(24.0) : 0.02) << spec.name;
    } else {
      EXPECT_FALSE(spec.decay()) << spec.name;
    }
    EXPECT_EQ(spec.backward_uses, spec.name == "transformer.wte.weight" ? 2 : 1);
  }
}

TEST(MakeParameters, OfLlama_UsesTheNamesOfItsCheckpoints) {
  const ModelParameters model = MakeParameters(*FindPreset("llama-tiny"));
  std::set<std::string> names;
  for (const ParameterSpec& spec : model.specs) names.insert(spec.name);
  EXPECT_EQ(names.size(), 2 * 9 + 3);
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.1.input_layernorm.weight",
        "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight", "lm_head.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(MakeParameters, OfOneHalfOfALayer_AreAUnit) {
  const ModelParameters model = MakeParameters(*FindPreset("llama-tiny"));
  std::set<uint32_t> units;
  size_t members = 0;
  const auto check = [&](const std::vector<ParameterId>& half) {
    const auto unit = model.specs[static_cast<size_t>(half[0])].unit;
    ASSERT_TRUE(unit.has_value());
    EXPECT_TRUE(units.insert(*unit).second);
    for (const ParameterId id : half) {
      EXPECT_EQ(model.specs[static_cast<size_t>(id)].unit, unit);
      ++members;
    }
  };
  for (const AttentionPlaces& half : model.attention) check(half.all);
  for (const MlpPlaces& half : model.mlp) check(half.all);
  // Only the parameters of sublayers have a unit.
  EXPECT_EQ(static_cast<size_t>(std::ranges::count_if(
                model.specs, [](const ParameterSpec& spec) { return spec.unit.has_value(); })),
            members);
}

}  // namespace
}  // namespace geminid::trainer
