#include "training/models/huggingface.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "client/checkpoint/newest.h"
#include "training/forecast/hf_keys.h"

namespace geminid::trainer {
namespace {

using Keys = forecast::HuggingFaceKeys;

constexpr char kConfigName[] = "/config.json";
constexpr size_t kConfigBytesMax = size_t{1} << 20;

// Where the transformers library takes a default of its own, so do we.

void Require(Keys& keys, bool is_so, const char* problem) {
  if (!is_so) keys.Fail(problem);
}

// A vocabulary of bytes has no special tokens unless the file names them. A token that is outside
// of the vocabulary, as transformers' defaults are for small ones, can end nothing.
void ReadSpecialTokens(Keys& keys, std::optional<uint64_t> usual_first,
                       std::optional<uint64_t> usual_end, ModelConfig* model) {
  const auto usual = [&](std::optional<uint64_t> token) {
    return !token || model->vocabulary == kByteVocabulary ? std::vector<uint64_t>()
                                                          : std::vector<uint64_t>{*token};
  };
  for (const uint64_t first : keys.Counts("bos_token_id", usual(usual_first))) {
    if (first < model->vocabulary) model->first_token = first;
  }
  for (const uint64_t end : keys.Counts("eos_token_id", usual(usual_end))) {
    if (end < model->vocabulary) model->end_tokens.push_back(end);
  }
}

ModelConfig ReadGpt2(Keys& keys, const base::JsonValue& /*root*/) {
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

// The activations of an MLP without a gate. The three forms of tanh differ by rounding.
void ReadActivation(Keys& keys, const char* key, ModelConfig* model) {
  const std::string name = keys.Word(key, Name(model->usual_activation()));
  for (const Activation known : {Activation::kGelu, Activation::kGeluErf, Activation::kRelu}) {
    if (name == Name(known)) model->mlp_activation = known;
  }
  if (name == "gelu_fast" || name == "gelu_pytorch_tanh") model->mlp_activation = Activation::kGelu;
  if (model->mlp_activation) return;
  keys.Fail(absl::StrCat("'", key, "' is '", name,
                         "'; gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and relu are known"));
}

// OPT-350m is none of these: its norms stand behind the layers, and its table is narrower.
ModelConfig ReadOpt(Keys& keys, const base::JsonValue& /*root*/) {
  ModelConfig model = {.family = Family::kOpt};
  model.layers = keys.Count("num_hidden_layers");
  model.hidden = keys.Count("hidden_size");
  model.heads = model.kv_heads = keys.Count("num_attention_heads");
  model.intermediate = keys.Count("ffn_dim");
  model.vocabulary = keys.Count("vocab_size", 50272);
  model.positions = keys.Count("max_position_embeddings", 2048);
  model.tied = keys.Flag("tie_word_embeddings", true);
  ReadSpecialTokens(keys, 2, 2, &model);
  Require(keys, keys.Word("activation_function", "relu") == "relu",
          "'activation_function' is not relu");
  Require(keys, keys.Flag("do_layer_norm_before", true),
          "'do_layer_norm_before' is false; norms behind the layers are not known");
  Require(keys, !keys.Flag("_remove_final_layer_norm", false),
          "'_remove_final_layer_norm' is true");
  Require(keys, keys.Count("word_embed_proj_dim", model.hidden) == model.hidden,
          "'word_embed_proj_dim' is not 'hidden_size'");
  Require(keys, keys.Flag("enable_bias", true), "'enable_bias' is false");
  Require(keys, keys.Flag("layer_norm_elementwise_affine", true),
          "'layer_norm_elementwise_affine' is false");
  return model;
}

// A value that is null counts as absent.
const base::JsonValue* Find(const base::JsonValue& root, const char* key) {
  for (const base::JsonValue::Member& member : root.members) {
    if (member.key == key && member.value.type != base::JsonValue::Type::kNull) {
      return &member.value;
    }
  }
  return nullptr;
}

void ReadYarn(Keys& rope, RotaryScaling* scaling) {
  scaling->beta_fast = rope.Real("beta_fast", 32);
  scaling->beta_slow = rope.Real("beta_slow", 1);
  scaling->rounds_ramp = rope.Flag("truncate", true);
  const double usual =
      YarnAttentionFactor(scaling->factor, rope.Real("mscale", 0), rope.Real("mscale_all_dim", 0));
  scaling->attention_factor = rope.Real("attention_factor", usual);
}

constexpr char kRotaryShare[] = "partial_rotary_factor";

// Families without a share turn whole heads.
void RefusePartialRotary(Keys& keys, const ModelConfig& model) {
  Require(keys, model.rotary_share || keys.Real(kRotaryShare, 1) == 1,
          "'partial_rotary_factor' is not 1; heads are turned as a whole");
}

// `usual`: the type where the object names none.
RotaryScaling ReadRotaryScaling(Keys& rope, uint64_t positions, const char* usual) {
  using Kind = RotaryScaling::Kind;
  RotaryScaling scaling;
  const std::string type = rope.Word("rope_type", rope.Word("type", usual));
  if (type == Name(Kind::kNone)) return scaling;
  for (const Kind kind : {Kind::kLinear, Kind::kLlama3, Kind::kYarn}) {
    if (type == Name(kind)) scaling.kind = kind;
  }
  if (scaling.kind == Kind::kNone) {
    rope.Fail(
        absl::StrCat("'rope_type' is '", type, "'; default, linear, llama3 and yarn are known"));
    return scaling;
  }
  if (!rope.Has("factor")) {
    rope.Fail(absl::StrCat("'factor' is missing, which 'rope_type' ", type, " needs"));
  }
  scaling.factor = rope.Real("factor", 1);
  if (scaling.kind == Kind::kLinear) return scaling;
  scaling.original_positions = rope.Count("original_max_position_embeddings", positions);
  if (scaling.kind == Kind::kYarn) {
    ReadYarn(rope, &scaling);
    return scaling;
  }
  scaling.slow_turns = rope.Real("low_freq_factor", 1);
  scaling.fast_turns = rope.Real("high_freq_factor", 4);
  return scaling;
}

// Newer versions of transformers keep all of it in 'rope_parameters', older ones in `theta`, for
// most families 'rope_theta', and 'rope_scaling', which wins where both are there.
void ReadRotary(Keys& keys, const base::JsonValue& root, const char* theta, double usual_theta,
                ModelConfig* model) {
  model->rotary_theta = keys.Real(theta, usual_theta);
  RefusePartialRotary(keys, *model);
  for (const auto& [key, usual] : {std::pair{"rope_parameters", "default"}, {"rope_scaling", ""}}) {
    const base::JsonValue* const value = Find(root, key);
    if (value == nullptr) continue;
    if (value->type != base::JsonValue::Type::kObject) {
      return keys.Fail(absl::StrCat("'", key, "' must be an object"));
    }
    Keys rope(*value);
    model->rotary_theta = rope.Real("rope_theta", model->rotary_theta);
    RefusePartialRotary(rope, *model);
    if (model->rotary_share) model->rotary_share = rope.Real(kRotaryShare, *model->rotary_share);
    model->rotary_scaling = ReadRotaryScaling(rope, *model->positions, usual);
    uint64_t& original = model->rotary_scaling.original_positions;
    if (original > 0) original = keys.Count("original_max_position_embeddings", original);
    absl::Status status = rope.status();
    if (status.ok()) status = Validate(model->rotary_scaling);
    if (!status.ok()) return keys.Fail(absl::StrCat("'", key, "': ", status.message()));
  }
}

// Of a configuration that does not say.
struct LlamaDefaults {
  uint64_t kv_heads = 0;  // 0: as many as heads
  uint64_t head_dim = 0;  // 0: hidden / heads
  uint64_t positions = 2048;
  double norm_epsilon = 1e-6;
  double rotary_theta = 10000;
  std::optional<uint64_t> first_token = 1;
  std::optional<uint64_t> end_token = 2;
};

// Only the families that have the key may say otherwise.
void RefuseAttentionBias(Keys& keys) {
  Require(keys, !keys.Flag("attention_bias", false), "'attention_bias' is true");
}

void ReadHeads(Keys& keys, const LlamaDefaults& defaults, ModelConfig* model) {
  model->heads = keys.Count("num_attention_heads");
  model->kv_heads =
      keys.Count("num_key_value_heads", defaults.kv_heads == 0 ? model->heads : defaults.kv_heads);
  if (!keys.Has("head_dim") && defaults.head_dim == 0) return;
  const uint64_t head_dim = keys.Count("head_dim", defaults.head_dim);
  if (head_dim * model->heads != model->hidden) model->head_width = head_dim;
}

ModelConfig ReadLlamaLike(Keys& keys, const base::JsonValue& root, Family family,
                          const LlamaDefaults& defaults = {}) {
  ModelConfig model = {.family = family};
  model.layers = keys.Count("num_hidden_layers");
  model.hidden = keys.Count("hidden_size");
  ReadHeads(keys, defaults, &model);
  model.intermediate = keys.Count("intermediate_size");
  model.vocabulary = keys.Count("vocab_size");
  model.positions = keys.Count("max_position_embeddings", defaults.positions);
  model.norm_epsilon = keys.Real("rms_norm_eps", defaults.norm_epsilon);
  ReadRotary(keys, root, "rope_theta", defaults.rotary_theta, &model);
  model.tied = keys.Flag("tie_word_embeddings", false);
  Require(keys, keys.Word("hidden_act", "silu") == "silu", "'hidden_act' is not silu");
  ReadSpecialTokens(keys, defaults.first_token, defaults.end_token, &model);
  Require(keys, !keys.Flag("mlp_bias", false), "'mlp_bias' is true");
  return model;
}

ModelConfig ReadLlama(Keys& keys, const base::JsonValue& root) {
  ModelConfig model = ReadLlamaLike(keys, root, Family::kLlama);
  model.attention_bias = keys.Flag("attention_bias", false);
  return model;
}

// Null: none. All layers have it.
void ReadWindow(Keys& keys, std::vector<uint64_t> usual, ModelConfig* model) {
  for (const uint64_t window : keys.Counts("sliding_window", std::move(usual))) {
    model->window = window;
    Require(keys, window > 0, "'sliding_window' is 0; null says that there is none");
  }
}

ModelConfig ReadMistral(Keys& keys, const base::JsonValue& root) {
  ModelConfig model =
      ReadLlamaLike(keys, root, Family::kMistral, {.kv_heads = 8, .positions = 131072});
  RefuseAttentionBias(keys);
  ReadWindow(keys, {4096}, &model);
  return model;
}

ModelConfig ReadMixtral(Keys& keys, const base::JsonValue& root) {
  ModelConfig model = ReadLlamaLike(
      keys, root, Family::kMixtral,
      {.kv_heads = 8, .positions = 131072, .norm_epsilon = 1e-5, .rotary_theta = 1e6});
  RefuseAttentionBias(keys);
  ReadWindow(keys, {}, &model);
  model.experts = keys.Count("num_local_experts", 8);
  model.experts_per_token = keys.Count("num_experts_per_tok", 2);
  model.balance_loss = keys.Real("router_aux_loss_coef", 0.001);
  Require(keys, keys.Real("router_jitter_noise", 0) == 0, "'router_jitter_noise' is not 0");
  return model;
}

constexpr LlamaDefaults kQwenDefaults = {
    .kv_heads = 32, .positions = 32768, .first_token = std::nullopt, .end_token = std::nullopt};

// Of Qwen's some layers have a window and others not.
void RefuseMixedWindows(Keys& keys, const base::JsonValue& root) {
  Require(keys, !keys.Flag("use_sliding_window", false),
          "'use_sliding_window' is true; windows of some layers are not known");
  const base::JsonValue* const types = Find(root, "layer_types");
  if (types == nullptr) return;
  for (const base::JsonValue& type : types->items) {
    Require(keys, type.text == "full_attention",
            "'layer_types' names others than full_attention, which are not known");
  }
}

ModelConfig ReadQwen2(Keys& keys, const base::JsonValue& root) {
  RefuseMixedWindows(keys, root);
  return ReadLlamaLike(keys, root, Family::kQwen2, kQwenDefaults);
}

ModelConfig ReadQwen3(Keys& keys, const base::JsonValue& root) {
  RefuseMixedWindows(keys, root);
  LlamaDefaults defaults = kQwenDefaults;
  defaults.head_dim = 128;
  ModelConfig model = ReadLlamaLike(keys, root, Family::kQwen3, defaults);
  model.attention_bias = keys.Flag("attention_bias", false);
  return model;
}

// Transformers takes base and share of the rotary positions from 'rope_parameters', else from keys
// of this family's own. Version 4 wrote the share as 'partial_rotary_factor' too, which version 5
// keeps where it drops the key of the family, and never reads.
ModelConfig ReadGptNeox(Keys& keys, const base::JsonValue& root) {
  ModelConfig model = {.family = Family::kGptNeox};
  model.layers = keys.Count("num_hidden_layers", 44);
  model.hidden = keys.Count("hidden_size", 6144);
  model.heads = model.kv_heads = keys.Count("num_attention_heads", 64);
  model.intermediate = keys.Count("intermediate_size", 24576);
  model.vocabulary = keys.Count("vocab_size", 50432);
  model.positions = keys.Count("max_position_embeddings", 2048);
  model.norm_epsilon = keys.Real("layer_norm_eps", 1e-5);
  model.rotary_share = keys.Real("rotary_pct", 0.25);
  Require(keys,
          !keys.Has("rotary_pct") ||
              keys.Real(kRotaryShare, *model.rotary_share) == *model.rotary_share,
          "'partial_rotary_factor' is not 'rotary_pct'");
  ReadRotary(keys, root, "rotary_emb_base", 10000, &model);
  model.tied = keys.Flag("tie_word_embeddings", false);
  model.attention_bias = keys.Flag("attention_bias", true);
  model.parallel_block = keys.Flag("use_parallel_residual", true);
  ReadActivation(keys, "hidden_act", &model);
  ReadSpecialTokens(keys, 0, 2, &model);
  return model;
}

// By the families' names, which are transformers' too.
struct Type {
  Family family;
  ModelConfig (*read)(Keys&, const base::JsonValue& root);
};
constexpr Type kTypes[] = {{Family::kGpt2, ReadGpt2},       {Family::kGptNeox, ReadGptNeox},
                           {Family::kLlama, ReadLlama},     {Family::kMistral, ReadMistral},
                           {Family::kMixtral, ReadMixtral}, {Family::kOpt, ReadOpt},
                           {Family::kQwen2, ReadQwen2},     {Family::kQwen3, ReadQwen3}};

std::string NamesOfTypes() {
  return absl::StrJoin(
      kTypes, ", ", [](std::string* text, const Type& type) { text->append(Name(type.family)); });
}

absl::StatusOr<std::string> FindConfig(const std::string& folder) {
  const auto exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  if (exists(folder + kConfigName)) return folder + kConfigName;
  struct stat about = {};
  if (::stat(folder.c_str(), &about) == 0 && !S_ISDIR(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", folder,
        "' is not a folder; give the folder of a checkpoint or of a Hugging Face model"));
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
  const auto* const known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const Type& one) { return type == Name(one.family); });
  if (known == std::end(kTypes)) {
    return bad("'model_type' is '", type, "'; ", NamesOfTypes(), " are known");
  }
  ModelConfig model = known->read(keys, root);
  model.lora_rank = keys.Count(kLoraRankKey, 0);
  model.lora_alpha = keys.Real(kLoraAlphaKey, static_cast<double>(model.lora_rank));
  if (!keys.status().ok()) return bad(std::string(keys.status().message()));
  model.context = std::min(*model.positions, kLoadedContextMax);
  if (absl::Status status = Validate(model); !status.ok()) {
    return bad(std::string(status.message()));
  }
  return model;
}

std::string_view LanguageModelPrefix(Family family) {
  switch (family) {
    case Family::kGpt2:
      return "transformer.";
    case Family::kGptNeox:
      return "gpt_neox.";
    default:
      return "model.";
  }
}

}  // namespace geminid::trainer
