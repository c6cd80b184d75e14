// Reads and writes config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/training/models/huggingface_configs.h"
#include "training/models/huggingface.h"
#include "training/models/parameters.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

TEST_F(HuggingFace, Gpt2_HasItsOwnDefaults) {
  const auto model = Read(kGpt2);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kGpt2);
  EXPECT_EQ(model->intermediate, 96u);
  EXPECT_EQ(model->position_rows(), 9u);
  EXPECT_TRUE(model->tied_output());
}

TEST_F(HuggingFace, Llama_HasTheDefaultsOfTransformers) {
  json config = kLlama;
  config.erase("rms_norm_eps");
  config.erase("rope_theta");
  config.erase("num_key_value_heads");
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->kv_heads, 6u);
  EXPECT_EQ(model->norm_epsilon, 1e-6);
  EXPECT_EQ(model->rotary_theta, 10000);
  EXPECT_FALSE(model->tied_output());
}

TEST_F(HuggingFace, Mixtral_HasTheDefaultsOfTransformers) {
  json config = kMixtral;
  for (const char* key :
       {"rms_norm_eps", "rope_theta", "num_key_value_heads", "max_position_embeddings",
        "num_local_experts", "num_experts_per_tok", "router_aux_loss_coef"}) {
    config.erase(key);
  }
  config["sliding_window"] = nullptr;
  config["hidden_size"] = 64;
  config["num_attention_heads"] = 16;
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kMixtral);
  EXPECT_EQ(model->experts, 8u);
  EXPECT_EQ(model->experts_per_token, 2u);
  EXPECT_EQ(model->balance_loss, 0.001);
  EXPECT_EQ(model->kv_heads, 8u);
  EXPECT_EQ(model->norm_epsilon, 1e-5);
  EXPECT_EQ(model->rotary_theta, 1e6);
  EXPECT_EQ(model->position_rows(), 131072u);
  EXPECT_FALSE(model->tied_output());
}

TEST_F(HuggingFace, Mistral_HasTheDefaultsOfTransformers) {
  json config = kMistral;
  for (const char* key : {"rms_norm_eps", "rope_theta", "num_key_value_heads",
                          "max_position_embeddings", "sliding_window"}) {
    config.erase(key);
  }
  config["num_attention_heads"] = 8;
  config["hidden_size"] = 64;
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kMistral);
  EXPECT_EQ(model->kv_heads, 8u);
  EXPECT_EQ(model->window, 4096u);
  EXPECT_EQ(model->norm_epsilon, 1e-6);
  EXPECT_EQ(model->rotary_theta, 10000);
  EXPECT_EQ(model->position_rows(), 131072u);
  EXPECT_EQ(model->attention_window(), 0u);  // no sequence of 1024 tokens exceeds the window
  config["sliding_window"] = nullptr;
  EXPECT_EQ(Read(config)->window, 0u);
}

// In transformers, null means as many key/value heads as heads, unlike an absent key.
TEST_F(HuggingFace, KeyValueHeadsThatAreNull_AreAsManyAsHeads) {
  for (json config : {kLlama, kMistral, kMixtral, kQwen2, kQwen3}) {
    config["num_key_value_heads"] = nullptr;
    EXPECT_EQ(Read(config)->kv_heads, 6u) << config;
  }
}

// Forecasts support these families, but the trainer has no code for them.
TEST_F(HuggingFace, OfAFamilyThatIsNotTrained_IsRefusedByItsTypeAlone) {
  for (const char* const type : {"falcon", "gemma2", "phi3", "t5"}) {
    EXPECT_THAT(
        Refusal(kLlama, "model_type", type),
        HasSubstr(
            "bert, gpt2, gpt_neox, llama, mistral, mixtral, opt, qwen2, qwen3, vit are known"));
    EXPECT_FALSE(ParseFamily(type).ok());
  }
}

// One reader serves both: a model that the trainer refuses by a key is still described.
TEST_F(HuggingFace, KeysThatOnlyTheTrainerRefuses_LeaveADescription) {
  json config = kLlama;
  config["mlp_bias"] = true;
  config["rope_scaling"] = {{"type", "longrope"}};
  const auto described = Describe(Family::kLlama, *ParseConfig(config.dump()));
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_TRUE(described->model.has_mlp_bias());
  EXPECT_THAT(std::string(described->trains.message()), HasSubstr("'rope_scaling'"));
  config["num_hidden_layers"] = "two";
  EXPECT_THAT(std::string(Describe(Family::kLlama, *ParseConfig(config.dump())).status().message()),
              HasSubstr("'num_hidden_layers'"));
}

TEST_F(HuggingFace, Opt_HasTheDefaultsOfTransformers) {
  json config = kOpt;
  config.erase("max_position_embeddings");
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kOpt);
  EXPECT_EQ(model->position_rows(), 2048u);
  EXPECT_TRUE(model->tied_output());
  EXPECT_EQ(model->first_token, 2u);
  EXPECT_THAT(model->end_tokens, testing::ElementsAre(2));
}

// The layout of OPTForCausalLM: no token uses the first two positions.
TEST_F(HuggingFace, ParametersOfOpt_HaveTheNamesAndShapesOfTransformers) {
  using Shape = std::vector<int64_t>;
  std::map<std::string, Shape> shapes;
  for (const ParameterSpec& spec : MakeParameters(*Read(kOpt)).specs) {
    shapes[spec.name] = spec.shape;
  }
  EXPECT_EQ(shapes.size(), 4u + 2 * 16);
  EXPECT_EQ(shapes["model.decoder.embed_positions.weight"], (Shape{11, 24}));
  EXPECT_EQ(shapes["model.decoder.embed_tokens.weight"], (Shape{300, 24}));
  EXPECT_EQ(shapes["model.decoder.final_layer_norm.bias"], (Shape{24}));
  const std::string layer = "model.decoder.layers.1.";
  EXPECT_EQ(shapes[layer + "self_attn.k_proj.bias"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "self_attn.out_proj.weight"], (Shape{24, 24}));
  EXPECT_EQ(shapes[layer + "self_attn_layer_norm.weight"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "fc1.weight"], (Shape{40, 24}));
  EXPECT_EQ(shapes[layer + "fc2.bias"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "final_layer_norm.bias"], (Shape{24}));
}

TEST_F(HuggingFace, GptNeox_HasTheDefaultsOfTransformers) {
  const auto model = Read({{"model_type", "gpt_neox"}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers, 44u);
  EXPECT_EQ(model->hidden, 6144u);
  EXPECT_EQ(model->heads, 64u);
  EXPECT_EQ(model->kv_heads, 64u);
  EXPECT_EQ(model->intermediate, 24576u);
  EXPECT_EQ(model->vocabulary, 50432u);
  EXPECT_EQ(model->position_rows(), 2048u);
  EXPECT_EQ(model->norm_epsilon, 1e-5);
  EXPECT_EQ(model->rotary_theta, 10000);
  EXPECT_EQ(model->rotary_columns(), 24u);  // a quarter of 96
  EXPECT_EQ(model->activation(), Activation::kGeluErf);
  EXPECT_TRUE(model->parallel());
  EXPECT_TRUE(model->output_bias());
  EXPECT_FALSE(model->tied_output());
  EXPECT_EQ(model->first_token, 0u);
  EXPECT_THAT(model->end_tokens, testing::ElementsAre(2));
}

TEST_F(HuggingFace, GptNeox_HasWhatEitherVersionOfTransformersSays) {
  EXPECT_EQ(Read(kGptNeox)->rotary_columns(), 4u);
  EXPECT_EQ(Read(kGptNeox)->rotary_theta, 5000);
  json config = kGptNeox;
  config["partial_rotary_factor"] = 0.5;  // version 4 wrote this beside 'rotary_pct'
  EXPECT_EQ(Read(config)->rotary_columns(), 4u);
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 300.0}, {"partial_rotary_factor", 0.75}};
  EXPECT_EQ(Read(config)->rotary_columns(), 6u);
  EXPECT_EQ(Read(config)->rotary_theta, 300);
  config["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(Read(config)->rotary_columns(), 4u);
  // The form in which version 5 writes a file of version 4 that rotated all columns.
  config.erase("rotary_pct");
  config["partial_rotary_factor"] = 1.0;
  config["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(Read(config)->rotary_columns(), 8u);
  config["use_parallel_residual"] = config["attention_bias"] = false;
  EXPECT_FALSE(Read(config)->parallel());
  EXPECT_FALSE(Read(config)->output_bias());
  for (const auto& [name, activation] :
       std::map<const char*, Activation>{{"gelu", Activation::kGeluErf},
                                         {"gelu_new", Activation::kGelu},
                                         {"gelu_fast", Activation::kGelu},
                                         {"gelu_pytorch_tanh", Activation::kGelu},
                                         {"relu", Activation::kRelu}}) {
    config["hidden_act"] = name;
    EXPECT_EQ(Read(config)->activation(), activation) << name;
  }
}

TEST_F(HuggingFace, GptNeoxThatCannotBeRun_IsRefusedByItsKey) {
  EXPECT_THAT(Refusal(kGptNeox, "hidden_act", "silu"), HasSubstr("'hidden_act' is 'silu'"));
  EXPECT_THAT(Refusal(kGptNeox, "partial_rotary_factor", 0.25),
              HasSubstr("'partial_rotary_factor' is not 'rotary_pct'"));
  EXPECT_THAT(Refusal(kGptNeox, "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}),
              HasSubstr("'rope_scaling': 'rope_type' is 'dynamic'"));
  EXPECT_THAT(Refusal(kGptNeox, "rotary_pct", 0.4), HasSubstr("turn 3 of the 8 columns of a head"));
  EXPECT_THAT(Refusal(kGptNeox, "rotary_pct", 0.1), HasSubstr("turn 0 of the 8 columns of a head"));
  EXPECT_THAT(Refusal(kGptNeox, "rotary_pct", 1.5), HasSubstr("positions turn is 1.5"));
  EXPECT_THAT(Refusal(kGptNeox, "num_attention_heads", 5), HasSubstr("must divide"));
}

// The layout of GPTNeoXForCausalLM's files.
TEST_F(HuggingFace, ParametersOfGptNeox_HaveTheNamesAndShapesOfTransformers) {
  using Shape = std::vector<int64_t>;
  std::map<std::string, Shape> shapes;
  for (const ParameterSpec& spec : MakeParameters(*Read(kGptNeox)).specs) {
    shapes[spec.name] = spec.shape;
  }
  EXPECT_EQ(shapes.size(), 4u + 2 * 12);
  EXPECT_EQ(shapes["gpt_neox.embed_in.weight"], (Shape{300, 24}));
  EXPECT_EQ(shapes["embed_out.weight"], (Shape{300, 24}));
  EXPECT_EQ(shapes["gpt_neox.final_layer_norm.bias"], (Shape{24}));
  const std::string layer = "gpt_neox.layers.1.";
  EXPECT_EQ(shapes[layer + "attention.query_key_value.weight"], (Shape{72, 24}));
  EXPECT_EQ(shapes[layer + "attention.query_key_value.bias"], (Shape{72}));
  EXPECT_EQ(shapes[layer + "attention.dense.weight"], (Shape{24, 24}));
  EXPECT_EQ(shapes[layer + "attention.dense.bias"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "input_layernorm.weight"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "post_attention_layernorm.bias"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "mlp.dense_h_to_4h.weight"], (Shape{40, 24}));
  EXPECT_EQ(shapes[layer + "mlp.dense_4h_to_h.bias"], (Shape{24}));
}

TEST_F(HuggingFace, Qwen_HasTheDefaultsOfTransformers) {
  for (json config : {kQwen2, kQwen3}) {
    for (const char* key : {"rms_norm_eps", "rope_theta", "num_key_value_heads",
                            "max_position_embeddings", "head_dim"}) {
      config.erase(key);
    }
    config["num_attention_heads"] = 32;
    config["hidden_size"] = 64;
    config["vocab_size"] = 1000;
    config["sliding_window"] = 4096;  // only used if 'use_sliding_window' is true
    const auto model = Read(config);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->kv_heads, 32u);
    EXPECT_EQ(model->head_dim(), config["model_type"] == "qwen3" ? 128u : 2u);
    EXPECT_EQ(model->window, 0u);
    EXPECT_EQ(model->norm_epsilon, 1e-6);
    EXPECT_EQ(model->position_rows(), 32768u);
    EXPECT_FALSE(model->tied_output());
    EXPECT_FALSE(model->first_token.has_value());
    EXPECT_THAT(model->end_tokens, testing::IsEmpty());
  }
}

TEST_F(HuggingFace, HeadsOfTheirOwnWidth_AreTakenWhereHiddenHasOthers) {
  json config = kLlama;
  config["head_dim"] = 4;  // as 24 / 6
  EXPECT_FALSE(Read(config)->head_width.has_value());
  config["head_dim"] = 8;
  EXPECT_EQ(Read(config)->head_dim(), 8u);
  EXPECT_EQ(Read(config)->query_columns(), 48u);
  EXPECT_THAT(Refusal(kQwen3, "head_dim", 7), HasSubstr("even head width"));
  EXPECT_THAT(Refusal(kQwen3, "head_dim", 0), HasSubstr("the width of a head is 0"));
}

using Shapes = std::map<std::string, std::vector<int64_t>>;
Shapes ShapesOf(const ModelConfig& model) {
  Shapes shapes;
  for (const ParameterSpec& spec : MakeParameters(model).specs) shapes[spec.name] = spec.shape;
  return shapes;
}

// The layout of Qwen2ForCausalLM, Qwen3ForCausalLM, and LlamaForCausalLM with 'attention_bias'.
TEST_F(HuggingFace, ParametersOfAttention_HaveTheNamesAndShapesOfTransformers) {
  using Shape = std::vector<int64_t>;
  const std::string attention = "model.layers.1.self_attn.";
  Shapes shapes = ShapesOf(*Read(kQwen2));
  EXPECT_EQ(shapes.size(), 3u + 2 * (9 + 3));
  EXPECT_EQ(shapes[attention + "q_proj.bias"], (Shape{24}));
  EXPECT_EQ(shapes[attention + "k_proj.bias"], (Shape{12}));
  EXPECT_EQ(shapes[attention + "v_proj.bias"], (Shape{12}));
  EXPECT_EQ(shapes.count(attention + "o_proj.bias"), 0u);
  shapes = ShapesOf(*Read(kQwen3));
  EXPECT_EQ(shapes.size(), 3u + 2 * (9 + 2));
  EXPECT_EQ(shapes[attention + "q_norm.weight"], (Shape{6}));
  EXPECT_EQ(shapes[attention + "k_norm.weight"], (Shape{6}));
  EXPECT_EQ(shapes[attention + "q_proj.weight"], (Shape{36, 24}));
  EXPECT_EQ(shapes[attention + "o_proj.weight"], (Shape{24, 36}));
  json biased = kLlama;
  biased["attention_bias"] = true;
  shapes = ShapesOf(*Read(biased));
  EXPECT_EQ(shapes.size(), 3u + 2 * (9 + 4));
  EXPECT_EQ(shapes[attention + "o_proj.bias"], (Shape{24}));
}

TEST_F(HuggingFace, Bert_HasTheDefaultsOfTransformers) {
  json config = kBert;
  for (const char* key : {"max_position_embeddings", "vocab_size"}) config.erase(key);
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kBert);
  EXPECT_EQ(model->vocabulary, 30522u);
  EXPECT_EQ(model->position_rows(), 512u);
  EXPECT_EQ(model->token_type_rows(), 2u);
  EXPECT_EQ(model->norm_epsilon, 1e-12);
  EXPECT_EQ(model->activation(), Activation::kGeluErf);
  EXPECT_TRUE(model->encodes() && model->masks() && model->norms_after() && model->tied_output());
  EXPECT_FALSE(model->masking.has_value());
  EXPECT_THAT(Refusal(kBert, "hidden_act", "silu"), HasSubstr("'hidden_act'"));
  EXPECT_THAT(Refusal(kBert, "tie_word_embeddings", false), HasSubstr("'tie_word_embeddings'"));
  EXPECT_THAT(Refusal(kBert, "architectures", {"BertForSequenceClassification"}),
              HasSubstr("BertForMaskedLM alone is trained"));
}

// The layout of BertForMaskedLM.
TEST_F(HuggingFace, ParametersOfBert_HaveTheNamesAndShapesOfTransformers) {
  using Shape = std::vector<int64_t>;
  Shapes shapes = ShapesOf(*Read(kBert));
  EXPECT_EQ(shapes.size(), 5u + 2 * 16 + 5);
  EXPECT_EQ(shapes["bert.embeddings.word_embeddings.weight"], (Shape{300, 24}));
  EXPECT_EQ(shapes["bert.embeddings.position_embeddings.weight"], (Shape{9, 24}));
  EXPECT_EQ(shapes["bert.embeddings.token_type_embeddings.weight"], (Shape{2, 24}));
  EXPECT_EQ(shapes["bert.embeddings.LayerNorm.bias"], (Shape{24}));
  const std::string layer = "bert.encoder.layer.1.";
  for (const char* const name : {"attention.self.query", "attention.self.key",
                                 "attention.self.value", "attention.output.dense"}) {
    EXPECT_EQ(shapes[layer + name + ".weight"], (Shape{24, 24})) << name;
    EXPECT_EQ(shapes[layer + name + ".bias"], (Shape{24})) << name;
  }
  EXPECT_EQ(shapes[layer + "attention.output.LayerNorm.weight"], (Shape{24}));
  EXPECT_EQ(shapes[layer + "intermediate.dense.weight"], (Shape{40, 24}));
  EXPECT_EQ(shapes[layer + "output.dense.weight"], (Shape{24, 40}));
  EXPECT_EQ(shapes[layer + "output.LayerNorm.bias"], (Shape{24}));
  EXPECT_EQ(shapes["cls.predictions.transform.dense.weight"], (Shape{24, 24}));
  EXPECT_EQ(shapes["cls.predictions.transform.LayerNorm.weight"], (Shape{24}));
  EXPECT_EQ(shapes["cls.predictions.bias"], (Shape{300}));
}

TEST_F(HuggingFace, MaskTokenOfBert_IsThatOfTheConfigOrOfTheTokenizersFiles) {
  folder_.Write("vocab.txt", "[PAD]\na\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nb\n");
  EXPECT_EQ(Read(kBert)->masking, (Masking{.mask_token = 5, .special_tokens = {0, 2, 3, 4, 5}}));
  folder_.Write("tokenizer.json", json{{"added_tokens",
                                        {{{"id", 1}, {"content", "[CLS]"}, {"special", true}},
                                         {{"id", 7}, {"content", "<mask>"}, {"special", true}},
                                         {{"id", 8}, {"content", "word"}, {"special", false}}}}}
                                      .dump());
  EXPECT_EQ(Read(kBert)->masking->mask_token, 5u);  // [MASK] in vocab.txt
  for (const json& name : {json("<mask>"), json{{"content", "<mask>"}, {"lstrip", true}}}) {
    folder_.Write("tokenizer_config.json", json{{"mask_token", name}}.dump());
    EXPECT_EQ(Read(kBert)->masking, (Masking{.mask_token = 7, .special_tokens = {1, 7}}));
  }
  json config = kBert;
  config["mask_token_id"] = 9;
  EXPECT_EQ(Read(config)->masking, (Masking{.mask_token = 9}));
  EXPECT_THAT(Refusal(kBert, "mask_token_id", 300), HasSubstr("the mask token is 300"));
  folder_.Write("tokenizer.json", "{");
  EXPECT_THAT(std::string(Read(kBert).status().message()), HasSubstr("tokenizer.json': line 1"));
}

// The layout of MixtralForCausalLM.
TEST_F(HuggingFace, ParametersOfMixtral_HaveTheNamesAndShapesOfTransformers) {
  const ModelConfig model = *Read(kMixtral);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ParameterSpec& spec : MakeParameters(model).specs) shapes[spec.name] = spec.shape;
  EXPECT_EQ(shapes.size(), 3u + 2 * (7 + 3 * 4));
  const std::string layer = "model.layers.1.";
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shapes[layer + "block_sparse_moe.gate.weight"], (Shape{4, 24}));
  for (const char* expert : {"0", "3"}) {
    const std::string name = layer + "block_sparse_moe.experts." + expert;
    EXPECT_EQ(shapes[name + ".w1.weight"], (Shape{40, 24}));
    EXPECT_EQ(shapes[name + ".w2.weight"], (Shape{24, 40}));
    EXPECT_EQ(shapes[name + ".w3.weight"], (Shape{40, 24}));
  }
  EXPECT_EQ(shapes[layer + "self_attn.k_proj.weight"], (Shape{12, 24}));
  EXPECT_EQ(shapes[layer + "post_attention_layernorm.weight"], (Shape{24}));
  EXPECT_EQ(shapes.count("lm_head.weight"), 1u);
}

TEST_F(HuggingFace, OfNewerTransformers_KeepsItsRotaryPositionsTogether) {
  json config = kLlama;
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  EXPECT_EQ(Read(config)->rotary_theta, 500000);
  EXPECT_THAT(Refusal(kLlama, "rope_parameters", {{"rope_type", "yarn"}}),
              HasSubstr("'rope_type'"));
}

TEST_F(HuggingFace, WithRotaryPositionsOfTypeDefault_IsUnscaled) {
  json config = kLlama;
  for (const char* const key : {"type", "rope_type"}) {
    config["rope_scaling"] = {{key, "default"}};
    EXPECT_EQ(Read(config)->rotary_theta, 500000) << key;
  }
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", json::object()), HasSubstr("'rope_scaling'"));
}

TEST_F(HuggingFace, WithScaledRotaryPositions_HasTheScalingOfEitherKey) {
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    json config = kLlama;
    config[key] = {{"type", "linear"}, {"factor", 2}};
    EXPECT_EQ(Read(config)->rotary_scaling,
              (RotaryScaling{.kind = RotaryScaling::Kind::kLinear, .factor = 2}));
    config[key] = kLlama3Scaling;
    EXPECT_EQ(Read(config)->rotary_scaling, (RotaryScaling{.kind = RotaryScaling::Kind::kLlama3,
                                                           .factor = 8,
                                                           .original_positions = 64,
                                                           .slow_turns = 1,
                                                           .fast_turns = 4}));
  }
  json config = kLlama;
  config["rope_parameters"] = kYarn;
  config["rope_parameters"]["rope_theta"] = 1e6;
  EXPECT_EQ(Read(config)->rotary_theta, 1e6);
  EXPECT_EQ(Read(config)->rotary_scaling, (RotaryScaling{.kind = RotaryScaling::Kind::kYarn,
                                                         .factor = 4,
                                                         .original_positions = 64,
                                                         .beta_slow = 1,
                                                         .beta_fast = 4,
                                                         .attention_factor = 1.25}));
}

// A YaRN configuration's absent keys have defaults from the paper and from the other keys.
TEST_F(HuggingFace, WithYarn_HasTheDefaultsOfTransformers) {
  json config = kLlama;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 40}};
  RotaryScaling scaling = Read(config)->rotary_scaling;
  EXPECT_EQ(scaling.original_positions, 9u);  // all positions of the model
  EXPECT_EQ(scaling.beta_fast, 32);
  EXPECT_EQ(scaling.beta_slow, 1);
  EXPECT_TRUE(scaling.rounds_ramp);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, 0.1 * std::log(40) + 1);
  config["original_max_position_embeddings"] = 5;  // this key wins, as in Phi-3's files
  EXPECT_EQ(Read(config)->rotary_scaling.original_positions, 5u);
  config["rope_scaling"].update({{"mscale", 0.707}, {"mscale_all_dim", 1.5}, {"truncate", false}});
  scaling = Read(config)->rotary_scaling;
  EXPECT_DOUBLE_EQ(scaling.attention_factor, YarnAttentionFactor(40, 0.707, 1.5));
  EXPECT_FALSE(scaling.rounds_ramp);
}

TEST_F(HuggingFace, NumbersThatAreNotFinite_MatterOnlyWhereTheyAreRead) {
  std::string text = kLlama.dump();
  text.insert(1, "\"time_step_limit\": [0.0, Infinity], \"unused\": NaN, ");
  folder_.Write("config.json", text);
  const auto model = ReadHuggingFaceConfig(folder_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->hidden, 24u);
  json without = kLlama;
  without.erase("rope_theta");
  text = without.dump();
  text.insert(1, "\"rope_theta\": Infinity, ");
  folder_.Write("config.json", text);
  EXPECT_THAT(std::string(ReadHuggingFaceConfig(folder_.path()).status().message()),
              HasSubstr("'rope_theta' must be a finite number"));
}

TEST_F(HuggingFace, SpecialTokens_AreThoseOfTheFileOrOfTransformers) {
  json config = kGpt2;
  // 50256 is outside a vocabulary of 300.
  EXPECT_THAT(Read(config)->end_tokens, testing::IsEmpty());
  config["eos_token_id"] = {7, 299, 300};
  EXPECT_THAT(Read(config)->end_tokens, testing::ElementsAre(7, 299));
  config["vocab_size"] = 50257;
  config["eos_token_id"] = nullptr;
  EXPECT_THAT(Read(config)->end_tokens, testing::IsEmpty());
  config.erase("eos_token_id");
  EXPECT_THAT(Read(config)->end_tokens, testing::ElementsAre(50256));
  EXPECT_EQ(Read(config)->first_token, 50256u);
  EXPECT_THAT(Read(kLlama)->end_tokens, testing::ElementsAre(2));
  config = kLlama;
  config["vocab_size"] = 256;  // bytes
  EXPECT_THAT(Read(config)->end_tokens, testing::IsEmpty());
}

// transformers requires that a float has a point, and that its default tokens are overwritten.
TEST_F(HuggingFace, Exported_HasFloatsAndSpecialTokens) {
  json config = kMixtral;
  config["router_aux_loss_coef"] = 0;
  config["rope_theta"] = 10000;
  config["eos_token_id"] = {4, 5};
  const std::string text = HuggingFaceConfig(*Read(config), "float32");
  EXPECT_THAT(text, HasSubstr("\"router_aux_loss_coef\": 0.0"));
  EXPECT_THAT(text, HasSubstr("\"rope_theta\": 10000.0"));
  const json written = json::parse(text);
  EXPECT_TRUE(written["rms_norm_eps"].is_number_float());
  EXPECT_EQ(written["eos_token_id"], json({4, 5}));
  EXPECT_EQ(written["bos_token_id"], 1);
  const json bytes = json::parse(HuggingFaceConfig({.family = Family::kGpt2}, "float32"));
  EXPECT_TRUE(bytes["eos_token_id"].is_null());
  EXPECT_TRUE(bytes["bos_token_id"].is_null());
}

TEST_F(HuggingFace, OfALongContext_IsCutToSequencesThatAreUsual) {
  json config = kLlama;
  config["max_position_embeddings"] = 131072;
  EXPECT_EQ(Read(config)->context, kLoadedContextMax);
  EXPECT_EQ(Read(config)->position_rows(), 131072u);
}

TEST_F(HuggingFace, ThatCannotBeRun_IsRefusedByItsKey) {
  EXPECT_THAT(Refusal(kLlama, "quantization_config", {{"quant_method", "gptq"}}),
              HasSubstr("'quantization_config': the weights are quantized"));
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", {{"type", "linear"}}), HasSubstr("'rope_scaling'"));
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}),
              HasSubstr("'rope_scaling': 'rope_type' is 'dynamic'"));
  json scaling = kLlama3Scaling;
  scaling["high_freq_factor"] = 1;
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", scaling),
              HasSubstr("'rope_scaling': the high_freq_factor"));
  scaling = kYarn;
  scaling["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(Refusal(kLlama, "rope_parameters", scaling), HasSubstr("'partial_rotary_factor'"));
  EXPECT_THAT(Refusal(kLlama, "partial_rotary_factor", 0.5), HasSubstr("'partial_rotary_factor'"));
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", "yarn"), HasSubstr("'rope_scaling' must be an"));
  EXPECT_THAT(Refusal(kMistral, "attention_bias", true), HasSubstr("'attention_bias'"));
  EXPECT_THAT(Refusal(kMixtral, "attention_bias", true), HasSubstr("'attention_bias'"));
  EXPECT_THAT(Refusal(kMistral, "sliding_window", 0), HasSubstr("'sliding_window' is 0"));
  for (const json& qwen : {kQwen2, kQwen3}) {
    EXPECT_THAT(Refusal(qwen, "use_sliding_window", true), HasSubstr("'use_sliding_window'"));
    EXPECT_THAT(Refusal(qwen, "layer_types", {"full_attention", "sliding_attention"}),
                HasSubstr("'layer_types'"));
  }
  EXPECT_THAT(Refusal(kLlama, "mlp_bias", true), HasSubstr("'mlp_bias'"));
  EXPECT_THAT(Refusal(kLlama, "hidden_act", "gelu"), HasSubstr("'hidden_act'"));
  EXPECT_THAT(Refusal(kMixtral, "router_jitter_noise", 0.1), HasSubstr("'router_jitter_noise'"));
  EXPECT_THAT(Refusal(kMixtral, "num_experts_per_tok", 5), HasSubstr("experts for each token"));
  EXPECT_THAT(Refusal(kGpt2, "activation_function", "relu"), HasSubstr("'activation_function'"));
  for (const auto& [key, value] :
       std::map<const char*, json>{{"activation_function", "gelu"},
                                   {"do_layer_norm_before", false},
                                   {"_remove_final_layer_norm", true},
                                   {"word_embed_proj_dim", 12},
                                   {"enable_bias", false},
                                   {"layer_norm_elementwise_affine", false}}) {
    EXPECT_THAT(Refusal(kOpt, key, value), HasSubstr(std::string("'") + key + "'"));
  }
  EXPECT_THAT(Refusal(kGpt2, "model_type", "mamba"), HasSubstr("'model_type' is 'mamba'"));
  EXPECT_THAT(Refusal(kGpt2, "n_head", 5), HasSubstr("must divide"));
  EXPECT_THAT(Refusal(kGpt2, "n_layer", "two"), HasSubstr("'n_layer' must be a whole number"));
  EXPECT_THAT(Refusal(kGpt2, "n_layer", 0), HasSubstr("config.json"));
  folder_.Write("config.json", "{");
  EXPECT_EQ(ReadHuggingFaceConfig(folder_.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadHuggingFaceConfig(folder_ / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HuggingFace, WrittenAndReadAgain_IsTheSame) {
  json biased = kLlama, windowed = kMixtral, whole = kMistral, narrow = kQwen3;
  json in_sequence = kGptNeox;
  in_sequence["use_parallel_residual"] = in_sequence["attention_bias"] = false;
  in_sequence["hidden_act"] = "gelu_new";
  in_sequence["rope_scaling"] = kYarn;
  whole["sliding_window"] = nullptr;  // not the 4096 of an absent key
  narrow["head_dim"] = 4;             // 24 / 6, not the 128 of an absent key
  biased["attention_bias"] = true;
  windowed["sliding_window"] = 4;
  json linear = {{"rope_type", "linear"}, {"factor", 2.0}}, not_rounded = kYarn;
  not_rounded["truncate"] = false;
  for (const json& config :
       {kGpt2, kOpt, kLlama, kMixtral, kMistral, kQwen2, kQwen3, biased, windowed,
        Scaled(kLlama, linear), Scaled(kLlama, kLlama3Scaling), Scaled(kQwen3, kYarn),
        Scaled(kMistral, not_rounded), whole, narrow, kGptNeox, in_sequence}) {
    const ModelConfig model = *Read(config);
    folder_.Write("config.json", HuggingFaceConfig(model, "float32"));
    const ModelConfig again = *ReadHuggingFaceConfig(folder_.path());
    EXPECT_EQ(HuggingFaceConfig(again, "float32"), HuggingFaceConfig(model, "float32"));
    EXPECT_EQ(again.rotary_theta, model.rotary_theta);
    EXPECT_EQ(again.rotary_scaling, model.rotary_scaling);
    EXPECT_EQ(again.window, model.window);
    EXPECT_EQ(again.head_dim(), model.head_dim());
    EXPECT_EQ(again.output_bias(), model.output_bias());
    EXPECT_EQ(again.parallel(), model.parallel());
    EXPECT_EQ(again.activation(), model.activation());
    EXPECT_EQ(again.rotary_columns(), model.rotary_columns());
    EXPECT_EQ(again.experts, model.experts);
    EXPECT_EQ(again.experts_per_token, model.experts_per_token);
    EXPECT_EQ(again.balance_loss, model.balance_loss);
    EXPECT_EQ(again.norm_epsilon, model.norm_epsilon);
  }
}

}  // namespace
}  // namespace geminid::trainer
