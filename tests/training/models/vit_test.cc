// ViT: what config.json says, the names of transformers, and what cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/training/models/huggingface_configs.h"
#include "training/models/parameters.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

const json kVit = {{"model_type", "vit"},     {"num_hidden_layers", 2},
                   {"hidden_size", 24},       {"num_attention_heads", 6},
                   {"intermediate_size", 40}, {"image_size", 32},
                   {"patch_size", 8},         {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}};

class Vit : public HuggingFace {};

TEST_F(Vit, WithoutKeys_HasTheDefaultsOfTransformers) {
  json config = kVit;
  for (const char* key : {"image_size", "patch_size", "id2label"}) config.erase(key);
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kVit);
  EXPECT_EQ(model->image, (ImageShape{.side = 224, .patch = 16, .channels = 3}));
  EXPECT_EQ(model->context, 197u);
  EXPECT_EQ(model->position_rows(), 197u);
  EXPECT_EQ(model->vocabulary, 0u);
  EXPECT_EQ(model->classes, 2u);
  EXPECT_EQ(model->norm_epsilon, 1e-12);
  EXPECT_EQ(model->activation(), Activation::kGeluErf);
  EXPECT_TRUE(model->encodes() && model->classifies() && model->qkv_bias());
  EXPECT_FALSE(model->masks() || model->norms_after() || model->tied_output());
}

// An image is all of its patches, more than other loaded models take of a sequence.
TEST_F(Vit, OfManyPatches_HasThemAllAsItsContext) {
  json config = kVit;
  config["image_size"] = 448;
  config["patch_size"] = 14;
  EXPECT_EQ(Read(config)->context, 1025u);
}

TEST_F(Vit, WithWhatCannotBe_IsRefusedByTheKey) {
  EXPECT_THAT(Refusal(kVit, "hidden_act", "silu"), HasSubstr("'hidden_act'"));
  EXPECT_THAT(Refusal(kVit, "patch_size", 7),
              HasSubstr("the patch size (7) must divide the image size (32)"));
  EXPECT_THAT(Refusal(kVit, "image_size", {32, 48}), HasSubstr("'image_size' must be a whole"));
  EXPECT_THAT(Refusal(kVit, "architectures", {"ViTForMaskedImageModeling"}),
              HasSubstr("ViTForImageClassification alone is known"));
  EXPECT_THAT(Refusal(kVit, "num_channels", 0), HasSubstr("the number of channels is 0"));
}

TEST_F(Vit, Parameters_HaveTheNamesAndShapesOfTransformers) {
  using Shape = std::vector<int64_t>;
  std::map<std::string, Shape> shapes;
  for (const ParameterSpec& spec : MakeParameters(*Read(kVit)).specs) {
    shapes[spec.name] = spec.shape;
  }
  EXPECT_EQ(shapes.size(), 4u + 2 * 16 + 4);
  EXPECT_EQ(shapes["vit.embeddings.cls_token"], (Shape{1, 1, 24}));
  EXPECT_EQ(shapes["vit.embeddings.position_embeddings"], (Shape{1, 17, 24}));
  EXPECT_EQ(shapes["vit.embeddings.patch_embeddings.projection.weight"], (Shape{24, 3, 8, 8}));
  EXPECT_EQ(shapes["vit.embeddings.patch_embeddings.projection.bias"], (Shape{24}));
  const std::string layer = "vit.encoder.layer.1.";
  for (const char* const name : {"attention.attention.query", "attention.attention.key",
                                 "attention.attention.value", "attention.output.dense"}) {
    EXPECT_EQ(shapes[layer + name + ".weight"], (Shape{24, 24})) << name;
    EXPECT_EQ(shapes[layer + name + ".bias"], (Shape{24})) << name;
  }
  EXPECT_EQ(shapes[layer + "layernorm_before.weight"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "layernorm_after.bias"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "intermediate.dense.weight"], (Shape{40, 24}));
  EXPECT_EQ(shapes[layer + "output.dense.weight"], (Shape{24, 40}));
  EXPECT_EQ(shapes["vit.layernorm.bias"], (Shape{24}));
  EXPECT_EQ(shapes["classifier.weight"], (Shape{3, 24}));
  EXPECT_EQ(shapes["classifier.bias"], (Shape{3}));
  json plain = kVit;
  plain["qkv_bias"] = false;
  EXPECT_EQ(MakeParameters(*Read(plain)).specs.size(), 4u + 2 * 13 + 4);
}

TEST_F(Vit, WrittenAndReadAgain_IsTheSame) {
  json other = kVit;
  other.update({{"qkv_bias", false},
                {"hidden_act", "gelu_new"},
                {"num_channels", 1},
                {"layer_norm_eps", 1e-6},
                {"id2label", {{"0", "one"}}}});
  for (const json& config : {kVit, other}) {
    const ModelConfig model = *Read(config);
    folder_.Write("config.json", HuggingFaceConfig(model, "float32"));
    const auto again = ReadHuggingFaceConfig(folder_.path());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(HuggingFaceConfig(*again, "float32"), HuggingFaceConfig(model, "float32"));
    EXPECT_EQ(again->image, model.image);
    EXPECT_EQ(again->classes, model.classes);
    EXPECT_EQ(again->qkv_bias(), model.qkv_bias());
    EXPECT_EQ(again->activation(), model.activation());
    EXPECT_EQ(again->norm_epsilon, model.norm_epsilon);
  }
  const json written = json::parse(HuggingFaceConfig(*Read(kVit), "float32"));
  EXPECT_EQ(written["architectures"][0], "ViTForImageClassification");
  EXPECT_EQ(written["id2label"]["2"], "LABEL_2");
  EXPECT_EQ(written["label2id"]["LABEL_2"], 2);
}

// google/vit-base-patch16-224, whose number of parameters was published.
TEST(VitPresets, Base_HasThePublishedParameters) {
  EXPECT_EQ(CountParameters(*FindPreset("vit-base")), 86'567'656u);
  EXPECT_TRUE(Validate(*FindPreset("vit-base")).ok());
  EXPECT_TRUE(Validate(*FindPreset("vit-tiny")).ok());
}

// 6 for each weight of a layer and 12 for each score; of an image's 17 tokens the class token alone
// reaches the classifier, and the 16 patches alone the projection, whose inputs have no gradient.
TEST(VitPresets, FlopsPerToken_CountsEachProductOfItsTokens) {
  const double layer = 6.0 * (4 * 64 * 64 + 2 * 64 * 256) + 12.0 * 64 * 17;
  const double ends = 6.0 * 64 * 10 / 17 + 4.0 * 192 * 64 * 16 / 17;
  EXPECT_NEAR(FlopsPerToken(*FindPreset("vit-tiny")), 2 * layer + ends, 1e-6);
}

TEST(ValidateOfImages, WhatDoesNotFit_SaysWhatWouldBeRight) {
  const ModelConfig good = *FindPreset("vit-tiny");
  const auto complaint = [](const ModelConfig& config) {
    return std::string(Validate(config).message());
  };
  ModelConfig bad = good;
  bad.image.reset();
  EXPECT_THAT(complaint(bad), HasSubstr("the vit family is a model of images; give --image-size"));
  bad = good;
  bad.family = Family::kGpt2;
  EXPECT_THAT(complaint(bad), HasSubstr("the gpt2 family is a model of tokens"));
  bad = good;
  bad.context = 16;
  EXPECT_THAT(complaint(bad), HasSubstr("16 patches and a token of its class, so that its context "
                                        "is 17"));
  bad = good;
  bad.classes = 0;
  EXPECT_THAT(complaint(bad), HasSubstr("the number of classes is 0"));
  bad = good;
  bad.lora_rank = 2;
  EXPECT_THAT(complaint(bad), HasSubstr("adapters do not support a classifier yet"));
}

}  // namespace
}  // namespace geminid::trainer
