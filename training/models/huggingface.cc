#include "training/models/huggingface.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/checkpoint/newest.h"
#include "training/forecast/hf_keys.h"

namespace geminid::trainer {
namespace {

using Keys = forecast::HuggingFaceKeys;

constexpr char kConfigName[] = "/config.json";
// Of checkpoints whose adapters are not merged; not transformers' own.
constexpr char kLoraRank[] = "geminid_lora_rank";
constexpr char kLoraAlpha[] = "geminid_lora_alpha";
constexpr size_t kConfigBytesMax = size_t{1} << 20;

// Where the transformers library takes a default of its own, so do we.

void Require(Keys& keys, bool is_so, const char* problem) {
  if (!is_so) keys.Fail(problem);
}

// A vocabulary of bytes has no special tokens unless the file names them. A token that is outside
// of the vocabulary, as transformers' defaults are for small ones, can end nothing.
void ReadSpecialTokens(Keys& keys, uint64_t usual_first, uint64_t usual_end, ModelConfig* model) {
  const auto usual = [&](uint64_t token) {
    return model->vocabulary == kByteVocabulary ? std::vector<uint64_t>()
                                                : std::vector<uint64_t>{token};
  };
  for (const uint64_t first : keys.Counts("bos_token_id", usual(usual_first))) {
    if (first < model->vocabulary) model->first_token = first;
  }
  for (const uint64_t end : keys.Counts("eos_token_id", usual(usual_end))) {
    if (end < model->vocabulary) model->end_tokens.push_back(end);
  }
}

ModelConfig ReadGpt2(Keys& keys) {
  ModelConfig model = {.family = Family::kGpt2};
  model.layers = keys.Count("n_layer");
  model.hidden = keys.Count("n_embd");
  model.heads = model.kv_heads = keys.Count("n_head");
  model.intermediate = keys.Count("n_inner", 4 * model.hidden);
  model.vocabulary = keys.Count("vocab_size", 50257);
  model.positions = keys.Count("n_positions", 1024);
  model.norm_epsilon = keys.Real("layer_norm_epsilon", 1e-5);
  model.tied = keys.Flag("tie_word_embeddings", true);
  constexpr uint64_t kEndOfText = 50256;
  ReadSpecialTokens(keys, kEndOfText, kEndOfText, &model);
  const std::string activation = keys.Word("activation_function", "gelu_new");
  Require(keys, activation == "gelu_new" || activation == "gelu_pytorch_tanh",
          "'activation_function' is neither gelu_new nor gelu_pytorch_tanh");
  Require(keys, keys.Flag("scale_attn_weights", true), "'scale_attn_weights' is false");
  Require(keys, !keys.Flag("scale_attn_by_inverse_layer_idx", false),
          "'scale_attn_by_inverse_layer_idx' is true");
  return model;
}

// Older versions of transformers keep the scaling apart from the base.
void CheckRopeScaling(Keys& keys, const base::JsonValue& root) {
  for (const base::JsonValue::Member& member : root.members) {
    if (member.key != "rope_scaling" || member.value.type == base::JsonValue::Type::kNull) continue;
    Keys scaling(member.value);
    const std::string type = scaling.Word("rope_type", scaling.Word("type", ""));
    Require(keys, type == "default" && scaling.status().ok(),
            "'rope_scaling' is not of type default; rotary positions are known unscaled alone");
  }
}

// Where newer versions of transformers keep the rotary positions.
double ReadRotaryTheta(Keys& keys, const base::JsonValue& root, double usual) {
  const double theta = keys.Real("rope_theta", usual);
  for (const base::JsonValue::Member& member : root.members) {
    if (member.key != "rope_parameters" || member.value.type == base::JsonValue::Type::kNull) {
      continue;
    }
    Keys rope(member.value);
    Require(keys, rope.Word("rope_type", "default") == "default",
            "'rope_type' is not default; rotary positions are known unscaled alone");
    const double inner = rope.Real("rope_theta", theta);
    if (!rope.status().ok()) keys.Fail(std::string(rope.status().message()));
    return inner;
  }
  return theta;
}

// Of a configuration that does not say.
struct LlamaDefaults {
  uint64_t kv_heads = 0;  // 0: as many as heads
  uint64_t positions = 2048;
  double norm_epsilon = 1e-6;
  double rotary_theta = 10000;
};

ModelConfig ReadLlama(Keys& keys, const base::JsonValue& root, const LlamaDefaults& defaults = {}) {
  ModelConfig model = {.family = Family::kLlama};
  model.layers = keys.Count("num_hidden_layers");
  model.hidden = keys.Count("hidden_size");
  model.heads = keys.Count("num_attention_heads");
  model.kv_heads =
      keys.Count("num_key_value_heads", defaults.kv_heads == 0 ? model.heads : defaults.kv_heads);
  model.intermediate = keys.Count("intermediate_size");
  model.vocabulary = keys.Count("vocab_size");
  model.positions = keys.Count("max_position_embeddings", defaults.positions);
  model.norm_epsilon = keys.Real("rms_norm_eps", defaults.norm_epsilon);
  model.rotary_theta = ReadRotaryTheta(keys, root, defaults.rotary_theta);
  model.tied = keys.Flag("tie_word_embeddings", false);
  Require(keys, keys.Word("hidden_act", "silu") == "silu", "'hidden_act' is not silu");
  CheckRopeScaling(keys, root);
  ReadSpecialTokens(keys, 1, 2, &model);
  Require(keys, !keys.Flag("attention_bias", false), "'attention_bias' is true");
  Require(keys, !keys.Flag("mlp_bias", false), "'mlp_bias' is true");
  const uint64_t usual = model.heads == 0 ? 0 : model.hidden / model.heads;
  Require(keys, keys.Count("head_dim", usual) == usual,
          "'head_dim' is not 'hidden_size' / 'num_attention_heads'");
  return model;
}

ModelConfig ReadMixtral(Keys& keys, const base::JsonValue& root) {
  ModelConfig model = ReadLlama(
      keys, root, {.kv_heads = 8, .positions = 131072, .norm_epsilon = 1e-5, .rotary_theta = 1e6});
  model.family = Family::kMixtral;
  model.experts = keys.Count("num_local_experts", 8);
  model.experts_per_token = keys.Count("num_experts_per_tok", 2);
  model.balance_loss = keys.Real("router_aux_loss_coef", 0.001);
  Require(keys, keys.Real("router_jitter_noise", 0) == 0, "'router_jitter_noise' is not 0");
  Require(keys, keys.Count("sliding_window", *model.positions) >= *model.positions,
          "'sliding_window' is less than 'max_position_embeddings'; tokens see all before them");
  return model;
}

absl::StatusOr<std::string> FindConfig(const std::string& folder) {
  const auto exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  if (exists(folder + kConfigName)) return folder + kConfigName;
  struct stat about = {};
  if (::stat(folder.c_str(), &about) == 0 && !S_ISDIR(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", folder, "' is not a folder; give the folder of a checkpoint or of a Hugging Face model"));
  }
  if (exists(folder)) {
    const absl::StatusOr<checkpoint::ChosenCheckpoint> chosen = checkpoint::ChooseNewest(folder);
    if (chosen.ok()) return chosen->path + kConfigName;
    if (!absl::IsNotFound(chosen.status())) return chosen.status();
  }
  return absl::NotFoundError(
      absl::StrCat("'", folder,
                   "' has neither config.json nor checkpoints; give --load the folder of a "
                   "checkpoint or of a Hugging Face model"));
}

// Both keys always: transformers has defaults of its own for those that are absent.
void WriteSpecialTokens(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("bos_token_id");
  model.first_token ? json->Value(*model.first_token) : json->Null();
  json->Key("eos_token_id");
  if (model.end_tokens.empty()) {
    json->Null();
  } else if (model.end_tokens.size() == 1) {
    json->Value(model.end_tokens.front());
  } else {
    json->BeginArray();
    for (const uint64_t token : model.end_tokens) json->Value(token);
    json->EndArray();
  }
}

void WriteGpt2(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("architectures").BeginArray().Value("GPT2LMHeadModel").EndArray();
  json->Key("model_type").Value("gpt2");
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("n_positions").Value(model.position_rows());
  json->Key("n_embd").Value(model.hidden);
  json->Key("n_layer").Value(model.layers);
  json->Key("n_head").Value(model.heads);
  json->Key("n_inner").Value(model.intermediate);
  json->Key("activation_function").Value("gelu_new");
  json->Key("layer_norm_epsilon").Real(model.norm_epsilon);
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

void WriteLlama(const ModelConfig& model, base::JsonWriter* json) {
  const bool routed = model.routed();
  json->Key("architectures").BeginArray();
  json->Value(routed ? "MixtralForCausalLM" : "LlamaForCausalLM").EndArray();
  json->Key("model_type").Value(routed ? "mixtral" : "llama");
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("num_key_value_heads").Value(model.kv_heads);
  json->Key("hidden_act").Value("silu");
  json->Key("rms_norm_eps").Real(model.norm_epsilon);
  json->Key("rope_theta").Real(model.rotary_theta);
  json->Key("tie_word_embeddings").Value(model.tied_output());
  if (!routed) return;
  json->Key("num_local_experts").Value(model.experts);
  json->Key("num_experts_per_tok").Value(model.experts_per_token);
  json->Key("router_aux_loss_coef").Real(model.balance_loss);
}

}  // namespace

absl::StatusOr<ModelConfig> ReadHuggingFaceConfig(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(const std::string path, FindConfig(folder));
  GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kConfigBytesMax));
  const auto bad = [&path](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", words...));
  };
  base::JsonValue root;
  base::JsonError error;
  if (!base::ParsePythonJson(text, &root, &error) || root.type != base::JsonValue::Type::kObject) {
    return bad("line ", error.position.line, ": ",
               error.problem.empty() ? "it is no JSON object" : error.problem);
  }
  Keys keys(root);
  const std::string type = keys.Word("model_type", "");
  if (type != "gpt2" && type != "llama" && type != "mixtral") {
    return bad("'model_type' is '", type, "'; gpt2, llama and mixtral are known");
  }
  ModelConfig model = type == "gpt2"    ? ReadGpt2(keys)
                      : type == "llama" ? ReadLlama(keys, root)
                                        : ReadMixtral(keys, root);
  model.lora_rank = keys.Count(kLoraRank, 0);
  model.lora_alpha = keys.Real(kLoraAlpha, static_cast<double>(model.lora_rank));
  if (!keys.status().ok()) return bad(std::string(keys.status().message()));
  model.context = std::min(*model.positions, kLoadedContextMax);
  if (absl::Status status = Validate(model); !status.ok()) {
    return bad(std::string(status.message()));
  }
  return model;
}

std::string HuggingFaceConfig(const ModelConfig& model, const std::string& data_type) {
  base::JsonWriter json;
  json.BeginObject();
  model.family == Family::kGpt2 ? WriteGpt2(model, &json) : WriteLlama(model, &json);
  WriteSpecialTokens(model, &json);
  json.Key("torch_dtype").Value(data_type);
  if (model.lora_rank > 0) {
    json.Key(kLoraRank).Value(model.lora_rank).Key(kLoraAlpha).Real(model.lora_alpha);
  }
  json.EndObject();
  return json.text() + "\n";
}

std::string_view LanguageModelPrefix(Family family) {
  return family == Family::kGpt2 ? "transformer." : "model.";
}

}  // namespace geminid::trainer
