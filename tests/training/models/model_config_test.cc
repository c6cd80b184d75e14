#include "training/models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace geminid::trainer {
namespace {

TEST(CountParameters, OfPublishedShapesWithTheirVocabularies_IsThePublishedNumber) {
  struct Case {
    const char* preset;
    uint64_t vocabulary;
    uint64_t parameters;
  };
  // The numbers of elements in the checkpoints of openai-community/gpt2 and gpt2-xl, of
  // meta-llama/Llama-2-7b, of TinyLlama-1.1B and of mistralai/Mixtral-8x7B-v0.1.
  for (const Case& c :
       {Case{"gpt2-small", 50257, 124'439'808}, Case{"gpt2-xl", 50257, 1'557'611'200},
        Case{"llama-7b", 32000, 6'738'415'616}, Case{"llama-1b", 32000, 1'100'048'384},
        Case{"mixtral-8x7b", 32000, 46'702'792'704}}) {
    ModelConfig config = *FindPreset(c.preset);
    config.vocabulary = c.vocabulary;
    EXPECT_EQ(CountParameters(config), c.parameters) << c.preset;
  }
}

// The configuration of a rank that shares experts with others.
TEST(CountParameters, OfOneExpertOfSeveral_HasTheRouterToo) {
  ModelConfig part = *FindPreset("mixtral-tiny");
  part.experts = 1;
  ModelConfig llama = part;
  llama.family = Family::kLlama;
  llama.experts = llama.experts_per_token = 0;
  EXPECT_EQ(CountParameters(part) - CountParameters(llama), part.layers * part.hidden);
}

TEST(Presets, Named20m_HaveAtLeastTwentyMillionParameters) {
  EXPECT_GE(CountParameters(*FindPreset("gpt2-20m")), 20'000'000);
  EXPECT_GE(CountParameters(*FindPreset("llama-20m")), 20'000'000);
  EXPECT_GE(CountParameters(*FindPreset("mixtral-20m")), 20'000'000);
}

TEST(Presets, All_AreValidAndFoundByName) {
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(Validate(preset.config).ok()) << preset.name << Validate(preset.config);
    EXPECT_TRUE(FindPreset(preset.name).ok());
  }
}

TEST(FindPreset, OfAnUnknownName_ListsTheNames) {
  const auto missing = FindPreset("gpt5");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()), testing::HasSubstr("gpt2-20m"));
}

TEST(DefaultIntermediate, OfLlama_IsEightThirdsRoundedUp) {
  EXPECT_EQ(DefaultIntermediate(Family::kLlama, 384), 1024);
  EXPECT_EQ(DefaultIntermediate(Family::kLlama, 4096), 10944);
  EXPECT_EQ(DefaultIntermediate(Family::kGpt2, 384), 1536);
  EXPECT_EQ(DefaultIntermediate(Family::kOpt, 384), 1536);
  EXPECT_EQ(DefaultIntermediate(Family::kGptNeox, 384), 1536);
}

TEST(DefaultIntermediate, OfMixtral_IsSevenHalvesRoundedUp) {
  EXPECT_EQ(DefaultIntermediate(Family::kMixtral, 4096), 14336);
  EXPECT_EQ(DefaultIntermediate(Family::kMixtral, 6), 64);
}

// Two of eight experts, a router, and everything that LLaMA has.
TEST(FlopsPerToken, OfExperts_CountsThoseThatATokenVisits) {
  ModelConfig mixtral = *FindPreset("mixtral-8x7b");
  ModelConfig llama = mixtral;
  llama.family = Family::kLlama;
  llama.experts = llama.experts_per_token = 0;
  const double expert = 6.0 * 3 * 4096 * 14336, router = 6.0 * 4096 * 8;
  EXPECT_EQ(FlopsPerToken(mixtral) - FlopsPerToken(llama), 32 * (expert + router));
  mixtral.experts_per_token = 1;
  EXPECT_EQ(FlopsPerToken(mixtral) - FlopsPerToken(llama), 32 * router);
}

// A token multiplies at most as many keys and values as its window has.
TEST(FlopsPerToken, OfAWindow_CountsItInPlaceOfTheContext) {
  const ModelConfig mistral = *FindPreset("mistral-tiny");
  ModelConfig llama = mistral;
  llama.family = Family::kLlama;
  llama.window = 0;
  EXPECT_EQ(FlopsPerToken(llama) - FlopsPerToken(mistral), 12.0 * 2 * 64 * (64 - 24));
}

// Heads have 32 columns, while the stream has 16 for each head.
TEST(FlopsPerToken, OfHeadsOfTheirOwnWidth_CountsTheirColumns) {
  const ModelConfig qwen3 = *FindPreset("qwen3-tiny");
  ModelConfig llama = qwen3;
  llama.family = Family::kLlama;
  llama.head_width.reset();
  const double matrices = 6.0 * 2 * 64 * (64 + 32), scores = 12.0 * 64 * 64;
  EXPECT_EQ(FlopsPerToken(qwen3) - FlopsPerToken(llama), 2 * (matrices + scores));
}

// The matrices and scores are those of GPT-2: the MLP's input does not matter.
TEST(FlopsPerToken, OfAParallelBlock_AreThoseOfOneAfterTheOther) {
  EXPECT_EQ(FlopsPerToken(*FindPreset("pythia-tiny")), FlopsPerToken(*FindPreset("gpt2-tiny")));
}

TEST(ParseFamily, OfEachName_IsTheFamily) {
  for (const Family family :
       {Family::kGpt2, Family::kLlama, Family::kMixtral, Family::kMistral, Family::kQwen2,
        Family::kQwen3, Family::kOpt, Family::kGptNeox, Family::kBert, Family::kVit}) {
    EXPECT_EQ(*ParseFamily(Name(family)), family);
  }
  EXPECT_THAT(std::string(ParseFamily("bloom").status().message()),
              testing::HasSubstr(
                  "use bert, gpt2, gpt_neox, llama, mistral, mixtral, opt, qwen2, qwen3 or vit"));
}

std::string Complaint(ModelConfig config) { return std::string(Validate(config).message()); }

TEST(Validate, OfAShapeThatCannotBe_SaysWhatIsWrong) {
  const ModelConfig good = *FindPreset("llama-tiny");
  ModelConfig bad = good;
  bad.heads = bad.kv_heads = 5;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("number of heads (5) must divide the hidden"));
  bad = good;
  bad.kv_heads = 3;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("key/value heads (3)"));
  bad = good;
  bad.layers = 0;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("the number of layers is 0"));
  bad = good;
  bad.rotary_theta = 0;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("base of the rotary embedding is 0"));
  bad = good;
  bad.norm_epsilon = -1;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("epsilon of the norms is -1"));
  bad = good;
  bad.hidden = 4096;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("use more heads"));
  bad = good;
  bad.hidden = bad.heads = bad.kv_heads = 64;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("even head width"));
  bad = *FindPreset("gpt2-tiny");
  bad.kv_heads = 2;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("GPT-2"));
  bad = *FindPreset("pythia-tiny");
  bad.kv_heads = 2;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("GPT-NeoX have as many key/value heads"));
  bad = good;
  bad.parallel_block = true;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("llama family has neither a parallel block"));
  bad = good;
  bad.rotary_share = 0.5;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("nor heads that are turned in part"));
  bad = *FindPreset("gpt2-tiny");
  bad.window = 8;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("nor a sliding window"));
  bad = good;
  bad.head_width = 512;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("a head of 512 columns is wider than"));
  bad = good;
  bad.rotary_scaling = {.kind = RotaryScaling::Kind::kLinear, .factor = -2};
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("factor of scaled rotary positions is -2"));
  bad = good;
  bad.experts = 4;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("use the mixtral family for experts"));
  const ModelConfig mixtral = *FindPreset("mixtral-tiny");
  bad = mixtral;
  bad.experts_per_token = 5;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("experts for each token is 5"));
  bad = mixtral;
  bad.experts = 0;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("the number of experts is 0"));
  bad = mixtral;
  bad.balance_loss = -1;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("balance loss is -1"));
  bad.balance_loss = 0;
  bad.expert_capacity = -1;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("capacity of an expert is -1"));
  bad = mixtral;
  bad.lora_rank = 2;
  EXPECT_THAT(Complaint(bad),
              testing::HasSubstr("adapters do not support models with experts yet"));
  bad = good;
  bad.context = uint64_t{1} << 40;
  EXPECT_THAT(Complaint(bad), testing::HasSubstr("context"));
}

}  // namespace
}  // namespace geminid::trainer
