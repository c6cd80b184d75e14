#include "training/forecast/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "training/forecast/catalogue.h"

namespace geminid::forecast {
namespace {

using ::testing::AllOf;
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

// The model of the file with that name in data/.
Model Published(const std::string& name) {
  std::ifstream file(std::string(GEMINID_FORECAST_DATA "/") + name + ".json");
  const std::string json(std::istreambuf_iterator<char>(file), {});
  const absl::StatusOr<Model> model = ModelFromHuggingFace(json);
  EXPECT_TRUE(model.ok()) << name << ": " << model.status();
  return model.ok() ? *model : Model{};
}

// The published number of parameters, in millions, and the exact number in the checkpoints.
struct Checkpoint {
  const char* name;
  double millions;
  std::uint64_t parameters;
};
constexpr Checkpoint kCheckpoints[] = {
    {"bert-base-uncased", 109.5, 109'514'298},
    {"gemma-2-9b", 9240, 9'241'705'984},
    {"gemma-7b", 8540, 8'537'680'896},
    {"llama-3.1-8b", 8030, 8'030'261'248},
    {"mixtral-8x7b-v0.1", 46700, 46'702'792'704},
    {"phi-3-mini-4k-instruct", 3820, 3'821'079'552},
    {"qwen3-8b", 8190, 8'190'735'360},
    {"t5-base", 222.9, 222'903'552},
    {"vit-base-patch16-224", 86.6, 86'567'656},
};

TEST(PublishedConfig, Parameters_AreThoseOfTheCheckpoint) {
  for (const Checkpoint& checkpoint : kCheckpoints) {
    const Model model = Published(checkpoint.name);
    const std::uint64_t parameters = CountParameters(model);
    EXPECT_EQ(parameters, checkpoint.parameters) << checkpoint.name;
    EXPECT_NEAR(static_cast<double>(parameters) * 1e-6 / checkpoint.millions, 1, 0.005)
        << checkpoint.name;
    std::uint64_t sum = 0;
    for (const Tensor& tensor : Tensors(model)) sum += tensor.elements();
    EXPECT_EQ(sum, parameters) << checkpoint.name;
  }
}

TEST(PublishedConfig, Mixtral_HasTheActiveParametersPublished) {
  const std::uint64_t active = CountActiveParameters(Published("mixtral-8x7b-v0.1"));
  EXPECT_NEAR(static_cast<double>(active) * 1e-9, 12.9, 0.05);
  EXPECT_EQ(CountActiveParameters(Published("qwen3-8b")), CountParameters(Published("qwen3-8b")));
}

TEST(PublishedConfig, Shapes_AreThoseOfTheFamily) {
  EXPECT_EQ(Published("bert-base-uncased").encoder_layers(), 12u);
  EXPECT_EQ(Published("bert-base-uncased").decoder_layers(), 0u);
  EXPECT_TRUE(Published("t5-base").has_both());
  EXPECT_EQ(Published("vit-base-patch16-224").position_rows(), 197u);
  EXPECT_EQ(Published("vit-base-patch16-224").classes, 1000u);
  EXPECT_TRUE(Published("gemma-2-9b").tied_output());  // by default
  EXPECT_EQ(Published("llama-3.1-8b").position_rows(), 131072u);
}

// The values of the checkpoints' config.json, with their published numbers of parameters.

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
  EXPECT_THAT(ErrorOf(R"({"model_type": "mamba"})"),
              AllOf(HasSubstr("'model_type' is 'mamba'"), HasSubstr("gpt_neox"),
                    HasSubstr("geminictl trace save")));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})"),
              HasSubstr("'text_config'"));
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

TEST(HuggingFaceConfig, WhatAFamilyCannotHonour_IsNamed) {
  const std::string layers = R"("num_hidden_layers": 2, "hidden_size": 64,
                                "num_attention_heads": 2, "intermediate_size": 64)";
  const auto error = [&](const std::string& type, const std::string& keys) {
    return ErrorOf("{\"model_type\": \"" + type + "\", " + layers + ", " + keys + "}");
  };
  EXPECT_THAT(error("bert", R"("is_decoder": true)"), HasSubstr("'is_decoder'"));
  EXPECT_THAT(error("bert", R"("position_embedding_type": "relative_key")"),
              HasSubstr("'position_embedding_type' is 'relative_key'"));
  EXPECT_THAT(error("bert", R"("architectures": ["BertForQuestionAnswering"])"),
              HasSubstr("BertForMaskedLM"));
  EXPECT_THAT(error("bert", R"("architectures": "BertForMaskedLM")"),
              HasSubstr("'architectures' must be an array of strings (line 2)"));
  EXPECT_THAT(error("vit", R"("patch_size": 0)"), HasSubstr("'patch_size' 0"));
  EXPECT_THAT(error("vit", R"("id2label": 3)"), HasSubstr("'id2label' must be an object"));
  EXPECT_THAT(
      error("mixtral", R"("vocab_size": 8, "num_key_value_heads": 2, "num_experts_per_tok": 9)"),
      HasSubstr("experts per token is 9; it must be from 1 to 8"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "t5", "num_layers": 2, "d_model": 8, "num_heads": 2,
                          "d_kv": 4, "d_ff": 8, "is_encoder_decoder": false})"),
              HasSubstr("'is_encoder_decoder'"));
}

TEST(HuggingFaceConfig, Classifiers_TakeTheirNumberOfClassesFromNamesOrNumber) {
  const auto classes = [](const std::string& keys) {
    return ModelFromHuggingFace(R"({"model_type": "bert", "num_hidden_layers": 2,
        "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64,
        "architectures": ["BertForSequenceClassification"])" +
                                keys + "}")
        ->classes;
  };
  EXPECT_EQ(classes(""), 2u);
  EXPECT_EQ(classes(R"(, "id2label": {"0": "a", "1": "b", "2": "c"})"), 3u);
  EXPECT_EQ(classes(R"(, "num_labels": 7)"), 7u);
}

// T5 v1.1 has a gated MLP and untied tables.
TEST(HuggingFaceConfig, GatedT5_HasItsParameters) {
  EXPECT_EQ(Parameters(R"({"model_type": "t5", "num_layers": 12, "num_decoder_layers": 12,
                           "d_model": 768, "num_heads": 12, "d_kv": 64, "d_ff": 2048,
                           "feed_forward_proj": "gated-gelu", "vocab_size": 32128,
                           "tie_word_embeddings": false})"),
            247'577'856u);
}

}  // namespace
}  // namespace geminid::forecast
