// LLaMA, and the families that differ from it by some properties: Mistral, Mixtral, Qwen2, Qwen3,
// Gemma and Phi-3.
#include <utility>
#include <vector>

#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

// The values of keys that a configuration lacks.
struct Defaults {
  uint64_t kv_heads = 0;  // 0: equal to heads
  uint64_t head_dim = 0;  // 0: hidden / heads
  uint64_t positions = 2048;
  double norm_epsilon = 1e-6;
  double rotary_theta = 10000;
  std::optional<uint64_t> first_token = 1;
  std::optional<uint64_t> end_token = 2;
};

void ReadHeads(ConfigKeys& keys, const Defaults& defaults, ModelConfig* model) {
  model->heads = model->kv_heads = keys.Count("num_attention_heads");
  // A key that is null means equal to heads, whatever the default of an absent key is.
  std::vector<uint64_t> usual;
  if (defaults.kv_heads > 0) usual.push_back(defaults.kv_heads);
  for (const uint64_t heads : keys.Counts("num_key_value_heads", usual)) model->kv_heads = heads;
  if (!keys.Has("head_dim") && defaults.head_dim == 0) return;
  const uint64_t head_dim = keys.Count("head_dim", defaults.head_dim);
  if (head_dim * model->heads != model->hidden) model->head_width = head_dim;
}

void ReadLlamaLike(ConfigReader& from, const Defaults& defaults, ModelConfig* model) {
  ConfigKeys& sizes = from.sizes;
  model->layers = sizes.Count("num_hidden_layers");
  model->hidden = sizes.Count("hidden_size");
  ReadHeads(sizes, defaults, model);
  model->intermediate = sizes.Count("intermediate_size");
  model->vocabulary = sizes.Count("vocab_size");
  model->positions = sizes.Count("max_position_embeddings", defaults.positions);
  model->tied = sizes.Flag("tie_word_embeddings", model->tied_output());
  ConfigKeys& training = from.training;
  model->norm_epsilon = training.Real("rms_norm_eps", defaults.norm_epsilon);
  ReadRotary(from, "rope_theta", defaults.rotary_theta, model);
  training.Require(training.Word("hidden_act", "silu") == "silu", "'hidden_act' is not silu");
  ReadSpecialTokens(from, defaults.first_token, defaults.end_token, model);
  training.Require(!training.Flag("mlp_bias", false), "'mlp_bias' is true");
}

void ReadLlama(ConfigReader& from, ModelConfig* model) {
  ReadLlamaLike(from, {}, model);
  model->attention_bias = from.sizes.Flag("attention_bias", false);
  model->mlp_bias = from.sizes.Flag("mlp_bias", false);
}

// Only some families have this key; the others refuse true.
void RefuseAttentionBias(ConfigKeys& keys) {
  keys.Require(!keys.Flag("attention_bias", false), "'attention_bias' is true");
}

// A null window means no window. All layers have the same window.
void ReadWindow(ConfigKeys& keys, std::vector<uint64_t> usual, ModelConfig* model) {
  for (const uint64_t window : keys.Counts("sliding_window", std::move(usual))) {
    model->window = window;
    keys.Require(window > 0, "'sliding_window' is 0; null says that there is none");
  }
}

void ReadMistral(ConfigReader& from, ModelConfig* model) {
  ReadLlamaLike(from, {.kv_heads = 8, .positions = 131072}, model);
  RefuseAttentionBias(from.training);
  ReadWindow(from.training, {4096}, model);
}

void ReadMixtral(ConfigReader& from, ModelConfig* model) {
  ReadLlamaLike(
      from, {.kv_heads = 8, .positions = 131072, .norm_epsilon = 1e-5, .rotary_theta = 1e6}, model);
  model->experts = from.sizes.Count("num_local_experts", 8);
  model->experts_per_token = from.sizes.Count("num_experts_per_tok", 2);
  ConfigKeys& training = from.training;
  RefuseAttentionBias(training);
  ReadWindow(training, {}, model);
  model->balance_loss = training.Real("router_aux_loss_coef", 0.001);
  training.Require(training.Real("router_jitter_noise", 0) == 0, "'router_jitter_noise' is not 0");
}

constexpr Defaults kQwenDefaults = {
    .kv_heads = 32, .positions = 32768, .first_token = std::nullopt, .end_token = std::nullopt};

// In some Qwen models only some layers have a window.
void RefuseMixedWindows(ConfigKeys& keys) {
  keys.Require(!keys.Flag("use_sliding_window", false),
               "'use_sliding_window' is true; windows of some layers are not known");
  const base::JsonValue* const types = keys.Find("layer_types");
  if (types == nullptr) return;
  for (const base::JsonValue& type : types->items) {
    keys.Require(type.text == "full_attention",
                 "'layer_types' names others than full_attention, which are not known");
  }
}

void ReadQwen2(ConfigReader& from, ModelConfig* model) {
  RefuseMixedWindows(from.training);
  ReadLlamaLike(from, kQwenDefaults, model);
}

void ReadQwen3(ConfigReader& from, ModelConfig* model) {
  RefuseMixedWindows(from.training);
  Defaults defaults = kQwenDefaults;
  defaults.head_dim = 128;
  ReadLlamaLike(from, defaults, model);
  model->attention_bias = from.sizes.Flag("attention_bias", false);
}

void ReadGemma(ConfigReader& from, ModelConfig* model) {
  ReadLlamaLike(from, {.head_dim = 256}, model);
  model->attention_bias = from.sizes.Flag("attention_bias", false);
}

void ReadPhi3(ConfigReader& from, ModelConfig* model) { ReadLlamaLike(from, {}, model); }

// Always writes the keys whose transformers defaults differ by family.
void WriteAttention(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("num_key_value_heads").Value(model.kv_heads);
  if (model.head_width || model.family == Family::kQwen3) {
    json->Key("head_dim").Value(model.head_dim());
  }
  if (model.attention_bias.value_or(false)) json->Key("attention_bias").Value(true);
  if (model.window > 0) {
    json->Key("sliding_window").Value(model.window);
  } else if (model.family == Family::kMistral) {
    json->Key("sliding_window").Null();
  }
}

void WriteLlama(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  WriteAttention(model, json);
  json->Key("hidden_act").Value("silu");
  json->Key("rms_norm_eps").Real(model.norm_epsilon);
  WriteRotary(model, "rope_theta", json);
  json->Key("tie_word_embeddings").Value(model.tied_output());
  if (!model.routed()) return;
  json->Key("num_local_experts").Value(model.experts);
  json->Key("num_experts_per_tok").Value(model.experts_per_token);
  json->Key("router_aux_loss_coef").Real(model.balance_loss);
}

}  // namespace

const FamilyTraits kLlamaFamily = {
    .name = "llama", .architecture = "LlamaForCausalLM", .read = ReadLlama, .write = WriteLlama};
const FamilyTraits kMistralFamily = {.name = "mistral",
                                     .architecture = "MistralForCausalLM",
                                     .read = ReadMistral,
                                     .write = WriteLlama};
const FamilyTraits kMixtralFamily = {.name = "mixtral",
                                     .architecture = "MixtralForCausalLM",
                                     .read = ReadMixtral,
                                     .write = WriteLlama};
const FamilyTraits kQwen2Family = {.name = "qwen2",
                                   .architecture = "Qwen2ForCausalLM",
                                   .qkv_bias = true,
                                   .read = ReadQwen2,
                                   .write = WriteLlama};
const FamilyTraits kQwen3Family = {.name = "qwen3",
                                   .architecture = "Qwen3ForCausalLM",
                                   .norms = {.heads = true},
                                   .read = ReadQwen3,
                                   .write = WriteLlama};

const FamilyTraits kGemmaFamily = {.name = "gemma", .tied = true, .read = ReadGemma};
const FamilyTraits kGemma2Family = {
    .name = "gemma2", .norms = {.outputs = true}, .tied = true, .read = ReadGemma};
const FamilyTraits kGemma3Family = {.name = "gemma3_text",
                                    .norms = {.heads = true, .outputs = true},
                                    .tied = true,
                                    .read = ReadGemma};
const FamilyTraits kPhi3Family = {
    .name = "phi3", .projection = Projection::kByHead, .fused_gate = true, .read = ReadPhi3};

}  // namespace geminid::trainer
