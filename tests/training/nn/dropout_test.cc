#include "training/nn/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/training/models/tiny_models.h"

namespace geminid::trainer {
namespace {

using zero::DataType;

DropoutPlace Place(double share, uint64_t seed = 1, uint64_t place = 0) {
  return {.dropout = {.share = share, .seed = seed},
          .place = place,
          .sequence_length = 50,
          .hidden = 33};
}

// The dropout factor of element `h` of token `t` of the micro-batch.
float DropoutFactor(const DropoutPlace& place, size_t t, size_t h) {
  const kernels::DropoutPattern pattern = DropoutPatternOf(place);
  const uint64_t element = FirstElement(place, t) + h;
  return pattern.Factor(pattern.Draw(element), element);
}

TEST(DropoutFactors, OfManyElements_AreZeroForTheirShareAndKeepTheMean) {
  for (const double share : {0.1, 0.5, 0.9}) {
    double zeros = 0, sum = 0, pairs = 0, before = 0;
    constexpr size_t kTokens = 3000;
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t h = 0; h < 33; ++h) {
        const double factor = DropoutFactor(Place(share), t, h);
        const double zero = factor == 0 ? 1 : 0;
        zeros += zero;
        sum += factor;
        pairs += (zero - share) * before;
        before = zero - share;
      }
    }
    const double count = 33.0 * kTokens;
    const double deviation = std::sqrt(share * (1 - share) / count);
    EXPECT_NEAR(zeros / count, share, 5 * deviation);
    EXPECT_NEAR(sum / count, 1, 5 * deviation / (1 - share));
    EXPECT_NEAR(pairs / count, 0, 5 * share * (1 - share) / std::sqrt(count));
  }
}

TEST(DropoutFactors, OfAnotherSeedPlaceOrSample_Differ) {
  const auto factors = [](const DropoutPlace& place) {
    std::vector<float> all;
    for (size_t h = 0; h < 33; ++h) all.push_back(DropoutFactor(place, 3, h));
    return all;
  };
  const std::vector<float> one = factors(Place(0.5));
  EXPECT_EQ(factors(Place(0.5)), one);
  EXPECT_NE(factors(Place(0.5, 2)), one);
  EXPECT_NE(factors(Place(0.5, 1, 1)), one);
  DropoutPlace later = Place(0.5);
  later.dropout.first_sample = 1;
  EXPECT_NE(factors(later), one);
  // A sample has its own factors, at any position in a micro-batch.
  EXPECT_EQ(DropoutFactor(later, 3, 7), DropoutFactor(Place(0.5), 50 + 3, 7));
}

TEST(ApplyDropout, InPieces_MultipliesByTheFactors) {
  const DropoutPlace place = Place(0.3);
  std::vector<float> x(7 * 33), y(x.size()), sum(x.size(), 10.0F);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
  for (const auto& [first, count] :
       std::vector<std::pair<size_t, size_t>>{{0, 2}, {2, 1}, {3, 4}}) {
    ApplyDropout(place, first, count, &x[first * 33], &y[first * 33]);
    AddDropout(place, first, count, &x[first * 33], &sum[first * 33]);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const float expected = x[i] * DropoutFactor(place, i / 33, i % 33);
    EXPECT_EQ(y[i], expected);
    EXPECT_EQ(sum[i], 10.0F + expected);
  }
}

struct DropoutCase {
  const char* name;
  ModelConfig config;
  Tiling tiling;
};

class DropoutGradient : public testing::TestWithParam<DropoutCase> {};

TEST_P(DropoutGradient, InFp32_MatchesFiniteDifferencesOfAFloat64Reference) {
  const ModelConfig& config = GetParam().config;
  const auto model = MakeTransformer(config, DataType::kFloat32, GetParam().tiling);
  DenseParameters parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Stir(parameters);
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 5}, 5);
  MicroBatch view = batch.view();
  view.dropout = {.share = 0.3, .seed = 11, .first_sample = 6};
  const auto loss = model->TrainMicroBatch(parameters, view, 1.0F);
  ASSERT_TRUE(loss.ok()) << loss.status();
  const Factor factor = [&](size_t place, size_t t, size_t h) {
    return DropoutFactor(
        {.dropout = view.dropout, .place = place, .sequence_length = 5, .hidden = config.hidden}, t,
        h);
  };
  NamedTensors named = Named(*model, parameters);
  const double reference = ReferenceLoss(config, named, batch, factor);
  EXPECT_NEAR(*loss, reference, 1e-5 * reference);
  EXPECT_GT(std::abs(*loss - ReferenceLoss(config, named, batch)), 1e-2);
  for (size_t p = 0; p < parameters.count(); ++p) {
    const std::string& name = model->parameters().specs[p].name;
    const size_t step = std::max<size_t>(1, parameters.gradient(p).size() / 5);
    for (size_t i = p % step; i < parameters.gradient(p).size(); i += step) {
      constexpr double kStep = 1e-5;
      double& value = named[name][i];
      const double centre = value;
      value = centre + kStep;
      const double up = ReferenceLoss(config, named, batch, factor);
      value = centre - kStep;
      const double down = ReferenceLoss(config, named, batch, factor);
      value = centre;
      const double expected = (up - down) / (2 * kStep);
      ASSERT_NEAR(parameters.gradient(p)[i], expected, 5e-5 + 3e-4 * std::abs(expected))
          << name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, DropoutGradient,
    testing::Values(DropoutCase{"gpt2", TinyGpt2(), Tiling{}},
                    DropoutCase{"gpt2_in_pieces", TinyGpt2(), kFineTiling},
                    DropoutCase{"llama", TinyLlama(), Tiling{}},
                    DropoutCase{"llama_in_pieces", TinyLlama(), kFineTiling},
                    DropoutCase{"gpt_neox", TinyGptNeox(), Tiling{}},
                    DropoutCase{"gpt_neox_in_pieces", TinyGptNeox(), kFineTiling},
                    DropoutCase{"bert", TinyBert(), Tiling{}},
                    DropoutCase{"bert_in_pieces", TinyBert(), kFineTiling},
                    DropoutCase{"vit", TinyVit(), kFineTiling},
                    DropoutCase{"mixtral", WithoutBalance(TinyMixtral()), Tiling{}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace geminid::trainer
