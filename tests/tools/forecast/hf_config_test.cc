#include "tools/forecast/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/forecast/catalogue.h"

namespace geminid::forecast {
namespace {

using ::testing::HasSubstr;

std::uint64_t Parameters(const std::string& json) {
  const absl::StatusOr<Model> model = ModelFromHuggingFace(json);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? CountParameters(*model) : 0;
}

std::string ErrorOf(const std::string& json) {
  const absl::StatusOr<Model> model = ModelFromHuggingFace(json);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(model.status().message());
}

// The values of the checkpoints' config.json, and their published numbers of parameters.

TEST(HuggingFaceConfig, Gpt2Xl_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25,
                           "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257,
                           "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1})"),
            1'557'611'200u);
}

TEST(HuggingFaceConfig, Opt350m_HasItsNarrowTableAndNoFinalNorm) {
  EXPECT_EQ(Parameters(R"({"model_type": "opt", "num_hidden_layers": 24, "hidden_size": 1024,
                           "num_attention_heads": 16, "ffn_dim": 4096, "vocab_size": 50272,
                           "max_position_embeddings": 2048, "word_embed_proj_dim": 512,
                           "do_layer_norm_before": false})"),
            331'196'416u);
}

TEST(HuggingFaceConfig, Opt6b_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "opt", "num_hidden_layers": 32, "hidden_size": 4096,
                           "num_attention_heads": 32, "ffn_dim": 16384, "vocab_size": 50272,
                           "word_embed_proj_dim": 4096, "_remove_final_layer_norm": false})"),
            6'658'473'984u);
}

TEST(HuggingFaceConfig, Llama2With70bAndGroupedQueries_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
                           "num_attention_heads": 64, "num_key_value_heads": 8,
                           "intermediate_size": 28672, "vocab_size": 32000,
                           "tie_word_embeddings": false})"),
            68'976'648'192u);
}

TEST(HuggingFaceConfig, Llama3With8b_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
                           "num_attention_heads": 32, "num_key_value_heads": 8,
                           "intermediate_size": 14336, "vocab_size": 128256,
                           "rope_scaling": null, "attention_bias": false})"),
            8'030'261'248u);
}

TEST(HuggingFaceConfig, Mistral7b_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096,
                           "num_attention_heads": 32, "num_key_value_heads": 8,
                           "intermediate_size": 14336, "vocab_size": 32000,
                           "sliding_window": 4096})"),
            7'241'732'096u);
}

TEST(HuggingFaceConfig, Qwen2Of7bAnd05b_HaveTheirParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584,
                           "num_attention_heads": 28, "num_key_value_heads": 4,
                           "intermediate_size": 18944, "vocab_size": 152064,
                           "tie_word_embeddings": false})"),
            7'615'616'512u);
  EXPECT_EQ(Parameters(R"({"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896,
                           "num_attention_heads": 14, "num_key_value_heads": 2,
                           "intermediate_size": 4864, "vocab_size": 151936,
                           "tie_word_embeddings": true})"),
            494'032'768u);
}

TEST(HuggingFaceConfig, GptNeoxOfPythia_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "gpt_neox", "num_hidden_layers": 32, "hidden_size": 4096,
                           "num_attention_heads": 32, "intermediate_size": 16384,
                           "vocab_size": 50432, "tie_word_embeddings": false})"),
            6'857'302'016u);
}

TEST(HuggingFaceConfig, FalconOldAndNew_HaveTheirParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544,
                           "num_attention_heads": 71, "multi_query": true, "parallel_attn": true,
                           "new_decoder_architecture": false, "bias": false,
                           "vocab_size": 65024})"),
            6'921'720'704u);
  EXPECT_EQ(Parameters(R"({"model_type": "falcon", "num_hidden_layers": 60, "hidden_size": 8192,
                           "num_attention_heads": 128, "num_kv_heads": 8,
                           "new_decoder_architecture": true, "bias": false,
                           "vocab_size": 65024})"),
            41'303'293'952u);
}

TEST(HuggingFaceConfig, WhatIsWrong_IsNamed) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("one object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("'model_type' is missing"));
  EXPECT_THAT(ErrorOf(R"({"model_type": 3})"), HasSubstr("'model_type' must be a string"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "bert"})"), HasSubstr("gpt_neox"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2})"),
              HasSubstr("'n_layer' is missing"));
  EXPECT_THAT(ErrorOf("{\"model_type\": \"gpt2\",\n\"n_layer\": 1.5}"),
              HasSubstr("'n_layer' must be a whole number and not negative (line 2)"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_layer": -1})"), HasSubstr("'n_layer'"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 10, "n_head": 3})"),
              HasSubstr("must divide"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 10, "n_head": 0})"),
              HasSubstr("must divide"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2,
                          "tie_word_embeddings": "yes"})"),
              HasSubstr("'tie_word_embeddings' must be true or false"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8,
                          "num_attention_heads": 4, "num_key_value_heads": 3,
                          "intermediate_size": 8, "vocab_size": 8})"),
              HasSubstr("must divide"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_layer": 99999999999999999999})"),
              HasSubstr("'n_layer'"));
}

}  // namespace
}  // namespace geminid::forecast
