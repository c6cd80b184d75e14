// The smallest possible configurations of Hugging Face models, and a folder to read them from.
#ifndef GEMINID_TESTS_TRAINING_MODELS_HUGGINGFACE_CONFIGS_H_
#define GEMINID_TESTS_TRAINING_MODELS_HUGGINGFACE_CONFIGS_H_

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/base/temporary_folder.h"
#include "training/models/huggingface.h"

namespace geminid::trainer {

using nlohmann::json;

inline const json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_embd", 24},
                           {"n_head", 6},          {"n_positions", 9}, {"vocab_size", 300}};
inline const json kLlama = {
    {"model_type", "llama"},        {"num_hidden_layers", 2},   {"hidden_size", 24},
    {"num_attention_heads", 6},     {"num_key_value_heads", 3}, {"intermediate_size", 40},
    {"max_position_embeddings", 9}, {"vocab_size", 300},        {"rms_norm_eps", 1e-5},
    {"rope_theta", 500000.0}};

inline const json kMixtral = [] {
  json config = kLlama;
  config.update({{"model_type", "mixtral"},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"router_aux_loss_coef", 0.02}});
  return config;
}();

inline const json kMistral = [] {
  json config = kLlama;
  config.update({{"model_type", "mistral"}, {"sliding_window", 4}});
  return config;
}();

inline const json kQwen2 = [] {
  json config = kLlama;
  config["model_type"] = "qwen2";
  return config;
}();

inline const json kOpt = {{"model_type", "opt"}, {"num_hidden_layers", 2},
                          {"hidden_size", 24},   {"num_attention_heads", 6},
                          {"ffn_dim", 40},       {"max_position_embeddings", 9},
                          {"vocab_size", 300}};

inline const json kBert = {{"model_type", "bert"},    {"num_hidden_layers", 2},
                           {"hidden_size", 24},       {"num_attention_heads", 6},
                           {"intermediate_size", 40}, {"max_position_embeddings", 9},
                           {"vocab_size", 300}};

// The form in which versions of transformers before 5 write it.
inline const json kGptNeox = {{"model_type", "gpt_neox"},  {"num_hidden_layers", 2},
                              {"hidden_size", 24},         {"num_attention_heads", 3},
                              {"intermediate_size", 40},   {"max_position_embeddings", 9},
                              {"vocab_size", 300},         {"rotary_pct", 0.5},
                              {"rotary_emb_base", 5000.0}, {"use_parallel_residual", true}};

// Heads that are wider in total than the residual stream.
inline const json kQwen3 = [] {
  json config = kLlama;
  config.update({{"model_type", "qwen3"}, {"head_dim", 6}});
  return config;
}();

inline const json kLlama3Scaling = {{"rope_type", "llama3"},
                                    {"factor", 8.0},
                                    {"original_max_position_embeddings", 64},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0}};
inline const json kYarn = {{"rope_type", "yarn"},      {"factor", 4.0},
                           {"beta_fast", 4.0},         {"beta_slow", 1.0},
                           {"attention_factor", 1.25}, {"original_max_position_embeddings", 64}};

inline json Scaled(json config, const json& scaling) {
  config.update({{"rope_theta", 100.0}, {"head_dim", 8}, {"rope_scaling", scaling}});
  return config;
}

class HuggingFace : public testing::Test {
 protected:
  absl::StatusOr<ModelConfig> Read(const json& config) {
    folder_.Write("config.json", config.dump());
    return ReadHuggingFaceConfig(folder_.path());
  }
  std::string Refusal(json config, const char* key, const json& value) {
    config[key] = value;
    const auto model = Read(config);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << key;
    return std::string(model.status().message());
  }

  const base::TemporaryFolder folder_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_MODELS_HUGGINGFACE_CONFIGS_H_
