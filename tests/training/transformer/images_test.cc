// A transformer of images (ViT): what transformer_test.cc asks of all families is asked there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/reference_model.h"
#include "tests/training/models/tiny_models.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using zero::DataType;

class ImageModel : public testing::Test {
 protected:
  const ModelConfig config_ = TinyVit();
  const std::unique_ptr<Transformer> model_ =
      MakeTransformer(config_, DataType::kFloat32, kFineTiling);
  DenseParameters parameters_{model_->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes};

  void SetUp() override { Stir(parameters_); }
};

// The largest logit of float64 says which are right.
TEST_F(ImageModel, Evaluation_IsTheReferencesLossAndCountsWhatIsRight) {
  Batch batch = RandomImages(config_, 16, 5);
  const NamedTensors named = WithPatches(Named(*model_, parameters_), batch);
  uint64_t expected = 0;
  for (size_t image = 0; image < 16; ++image) {
    const std::vector<std::vector<int32_t>> sequences = Sequences(batch.shape, batch.tokens);
    const std::vector<double> logits = ReferenceLogits(config_, named, sequences[image])[0];
    const auto best = std::ranges::max_element(logits) - logits.begin();
    int32_t& label = batch.targets[image * config_.context];
    if (image % 2 == 0) label = static_cast<int32_t>(best);
    expected += label == best ? 1 : 0;
  }
  ASSERT_GE(expected, 8u);
  ASSERT_LT(expected, 16u);
  MicroBatch view = batch.view();
  uint64_t right = 100;  // is added to
  view.right = &right;
  const auto loss = model_->Evaluate(parameters_, view);
  ASSERT_TRUE(loss.ok()) << loss.status();
  const double reference = ReferenceLoss(config_, Named(*model_, parameters_), batch);
  EXPECT_NEAR(*loss, reference, 1e-5 * reference);
  EXPECT_EQ(right, 100 + expected);
  EXPECT_NEAR(*loss, *model_->TrainMicroBatch(parameters_, batch.view(), 1.0F), 1e-6 * reference);
  EXPECT_EQ(parameters_.workspace().blocks(), 0u);
}

// An image is alone: its loss and gradients do not depend on those beside it.
TEST_F(ImageModel, LossOfSeveralImages_IsTheSumOfEach) {
  const Batch batch = RandomImages(config_, 3, 8);
  double sum = 0;
  const size_t elements = batch.patches.size() / 3, tokens = config_.context;
  for (size_t i = 0; i < 3; ++i) {
    const auto first = static_cast<ptrdiff_t>(i * elements);
    const auto target = static_cast<ptrdiff_t>(i * tokens);
    const Batch one = {
        .shape = {.sequences = 1, .sequence_length = tokens},
        .tokens = {},
        .targets = {batch.targets.begin() + target,
                    batch.targets.begin() + target + static_cast<ptrdiff_t>(tokens)},
        .patches = {batch.patches.begin() + first,
                    batch.patches.begin() + first + static_cast<ptrdiff_t>(elements)}};
    sum += *model_->TrainMicroBatch(parameters_, one.view(), 1.0F);
  }
  std::vector<std::vector<double>> apart;
  for (size_t p = 0; p < parameters_.count(); ++p) apart.push_back(parameters_.gradient(p));
  parameters_.ClearGradients();
  EXPECT_NEAR(*model_->TrainMicroBatch(parameters_, batch.view(), 1.0F), sum, 1e-5 * sum);
  for (size_t p = 0; p < parameters_.count(); ++p) {
    for (size_t i = 0; i < apart[p].size(); ++i) {
      ASSERT_NEAR(parameters_.gradient(p)[i], apart[p][i], 2e-5 + 1e-4 * std::abs(apart[p][i]))
          << model_->parameters().specs[p].name << "[" << i << "]";
    }
  }
}

TEST_F(ImageModel, OfOtherSizes_IsRefused) {
  const Batch batch = RandomImages(config_, 2, 5);
  MicroBatch view = batch.view();
  view.patches = view.patches.first(view.patches.size() - 1);
  EXPECT_THAT(std::string(model_->Evaluate(parameters_, view).status().message()),
              HasSubstr("a micro-batch of 2 images came with 5 tokens each"));
  view = batch.view();
  view.shape = {.sequences = 5, .sequence_length = 2};
  EXPECT_EQ(model_->Evaluate(parameters_, view).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Of two stages the first has the patches, and the last the labels.
TEST_F(ImageModel, InTwoParts_HasTheBitsOfTheWhole) {
  const Batch batch = RandomImages(config_, 2, 6);
  const double whole = *model_->TrainMicroBatch(parameters_, batch.view(), 0.5F);
  std::vector<float> passed(batch.shape.tokens() * config_.hidden), back(passed.size());
  const auto part_of = [&](uint64_t layer) {
    return MakeTransformerPart(
        config_, DataType::kFloat32,
        {.first_layer = layer, .layers = 1, .embeds = layer == 0, .outputs = layer == 1},
        kFineTiling);
  };
  const auto first = part_of(0), last = part_of(1);
  DenseParameters of_first(first->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  DenseParameters of_last(last->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes);
  const size_t before = of_first.count();
  ASSERT_EQ(before + of_last.count(), parameters_.count());
  for (size_t p = 0; p < parameters_.count(); ++p) {
    (p < before ? of_first.values(p) : of_last.values(p - before)) = parameters_.values(p);
  }
  ASSERT_TRUE(of_first.BeginMicroBatch().ok() && of_last.BeginMicroBatch().ok());
  auto forward = first->ForwardPart(of_first, batch.view(), {}, passed);
  ASSERT_TRUE(forward.ok()) << forward.status();
  auto output = last->ForwardPart(of_last, batch.view(), passed, {});
  ASSERT_TRUE(output.ok()) << output.status();
  const auto loss = last->BackwardPart(*std::move(output), 0.5F, {}, back);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(std::bit_cast<uint64_t>(*loss), std::bit_cast<uint64_t>(whole));
  ASSERT_TRUE(first->BackwardPart(*std::move(forward), 0.5F, back, {}).ok());
  for (size_t p = 0; p < parameters_.count(); ++p) {
    EXPECT_EQ(p < before ? of_first.gradient(p) : of_last.gradient(p - before),
              parameters_.gradient(p))
        << model_->parameters().specs[p].name;
  }
  EXPECT_EQ(of_first.workspace().blocks() + of_last.workspace().blocks(), 0u);
}

uint64_t PeakBytes(const ModelConfig& config, size_t images, DataType type) {
  const auto model = MakeTransformer(config, type);
  DenseParameters parameters(model->parameters().specs, type, 1, kWorkspaceBytes);
  const Batch batch = RandomImages(config, images, 5);
  EXPECT_TRUE(model->TrainMicroBatch(parameters, batch.view(), 1.0F).ok());
  EXPECT_EQ(parameters.workspace().blocks(), 0u);
  return parameters.workspace().peak_bytes();
}

// Also where the patches are wider than the stream, and the embedding takes most.
TEST(ImageModelMemory, OfAMicroBatch_IsWithinItsBoundAndGrowsByTwoInputsPerLayer) {
  ModelConfig config = *FindPreset("vit-tiny");
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const uint64_t patch : {16, 8, 4}) {
      config.image->patch = patch;
      config.context = config.image->tokens();
      const MicroBatchShape shape = {.sequences = 3, .sequence_length = config.context};
      std::vector<uint64_t> peaks;
      for (config.layers = 1; config.layers <= 8; config.layers += 7) {
        ASSERT_TRUE(Validate(config).ok()) << Validate(config);
        peaks.push_back(PeakBytes(config, shape.sequences, type));
        EXPECT_LE(peaks.back(), WorkspaceBytesBound(config, type, shape)) << patch;
      }
      if (patch == 16) continue;  // most is the embedding's in the small one
      EXPECT_EQ(peaks[1] - peaks[0], 7 * 2 * shape.tokens() * config.hidden * zero::SizeOf(type))
          << patch;
    }
  }
}

}  // namespace
}  // namespace geminid::trainer
