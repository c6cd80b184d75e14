#include "training/forecast/hf_config.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "training/forecast/hf_keys.h"

namespace geminid::forecast {
namespace {

using Keys = HuggingFaceKeys;

// Where the transformers library takes a default of its own, so do we.

std::uint64_t HeadDim(std::uint64_t hidden, std::uint64_t heads, Keys* keys) {
  if (heads != 0 && hidden % heads == 0) return hidden / heads;
  keys->Fail(
      absl::StrCat("the number of heads (", heads, ") must divide the hidden size (", hidden, ")"));
  return 0;
}

Model ReadGpt2(Keys& keys) {
  Model m;
  m.layers = keys.Count("n_layer");
  m.hidden = keys.Count("n_embd");
  m.heads = keys.Count("n_head");
  m.kv_heads = m.heads;
  m.head_dim = HeadDim(m.hidden, m.heads, &keys);
  m.intermediate = keys.Count("n_inner", 4 * m.hidden);
  m.vocabulary = keys.Count("vocab_size", 50257);
  m.position_rows = keys.Count("n_positions", 1024);
  m.context = m.position_rows;
  m.tied_output = keys.Flag("tie_word_embeddings", true);
  return m;
}

Model ReadOpt(Keys& keys) {
  Model m;
  m.fused_qkv = false;
  m.layers = keys.Count("num_hidden_layers");
  m.hidden = keys.Count("hidden_size");
  m.heads = keys.Count("num_attention_heads");
  m.kv_heads = m.heads;
  m.head_dim = HeadDim(m.hidden, m.heads, &keys);
  m.intermediate = keys.Count("ffn_dim");
  m.vocabulary = keys.Count("vocab_size", 50272);
  m.context = keys.Count("max_position_embeddings", 2048);
  m.position_rows = m.context + 2;
  m.embedding_width = keys.Count("word_embed_proj_dim", m.hidden);
  if (m.embedding_width == m.hidden) m.embedding_width = 0;
  // Post-norm models end with the last layer's norm.
  m.final_norm =
      keys.Flag("do_layer_norm_before", true) && !keys.Flag("_remove_final_layer_norm", false);
  const bool biases = keys.Flag("enable_bias", true);
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = biases;
  if (!keys.Flag("layer_norm_elementwise_affine", true)) {
    keys.Fail("'layer_norm_elementwise_affine' is false; norms without parameters are not known");
  }
  m.tied_output = keys.Flag("tie_word_embeddings", true);
  return m;
}

// What LLaMA, Mistral and Qwen2 share.
Model ReadLlamaLike(Keys& keys) {
  Model m;
  m.gated_mlp = true;
  m.norm_shift = false;
  m.fused_qkv = false;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = false;
  m.layers = keys.Count("num_hidden_layers");
  m.hidden = keys.Count("hidden_size");
  m.heads = keys.Count("num_attention_heads");
  m.kv_heads = keys.Count("num_key_value_heads", m.heads);
  m.head_dim = keys.Count("head_dim", 0);
  if (m.head_dim == 0) m.head_dim = HeadDim(m.hidden, m.heads, &keys);
  m.intermediate = keys.Count("intermediate_size");
  m.vocabulary = keys.Count("vocab_size");
  m.context = keys.Count("max_position_embeddings", 2048);
  m.tied_output = keys.Flag("tie_word_embeddings", false);
  return m;
}

Model ReadLlama(Keys& keys) {
  Model m = ReadLlamaLike(keys);
  m.qkv_bias = m.attention_output_bias = keys.Flag("attention_bias", false);
  m.mlp_bias = keys.Flag("mlp_bias", false);
  return m;
}

Model ReadQwen2(Keys& keys) {
  Model m = ReadLlamaLike(keys);
  m.qkv_bias = true;
  return m;
}

Model ReadMixtral(Keys& keys) {
  Model m = ReadLlamaLike(keys);
  m.experts = keys.Count("num_local_experts", 8);
  m.experts_per_token = keys.Count("num_experts_per_tok", 2);
  return m;
}

Model ReadQwen3(Keys& keys) {
  Model m = ReadLlamaLike(keys);
  m.head_dim = keys.Count("head_dim", 128);
  m.qkv_bias = m.attention_output_bias = keys.Flag("attention_bias", false);
  m.qk_norm = true;
  return m;
}

Model ReadPhi3(Keys& keys) {
  Model m = ReadLlamaLike(keys);
  m.fused_qkv = m.fused_gate = true;
  return m;
}

Model ReadGemma(Keys& keys) {
  Model m = ReadLlamaLike(keys);
  m.head_dim = keys.Count("head_dim", 256);
  m.qkv_bias = m.attention_output_bias = keys.Flag("attention_bias", false);
  m.tied_output = keys.Flag("tie_word_embeddings", true);
  return m;
}

Model ReadGemma2(Keys& keys) {
  Model m = ReadGemma(keys);
  m.output_norms = true;
  return m;
}

Model ReadGemma3Text(Keys& keys) {
  Model m = ReadGemma2(keys);
  m.qk_norm = true;
  return m;
}

// How many a classifier has: by name, by number, or the two of a configuration that says neither.
std::uint64_t Classes(Keys& keys) {
  const std::uint64_t named = keys.Members("id2label");
  return keys.Count("num_labels", named > 0 ? named : 2);
}

// Layers as in the encoders of 2018: LayerNorm, biases, and as many keys as queries.
Model ReadEncoder(Keys& keys) {
  Model m;
  m.fused_qkv = false;
  m.layers = m.encoder_layers = keys.Count("num_hidden_layers");
  m.hidden = keys.Count("hidden_size");
  m.heads = m.kv_heads = keys.Count("num_attention_heads");
  m.head_dim = HeadDim(m.hidden, m.heads, &keys);
  m.intermediate = keys.Count("intermediate_size");
  return m;
}

Model ReadBert(Keys& keys) {
  Model m = ReadEncoder(keys);
  m.vocabulary = keys.Count("vocab_size", 30522);
  m.context = keys.Count("max_position_embeddings", 512);
  m.position_rows = m.context;
  m.other_rows = keys.Count("type_vocab_size", 2);
  m.embedding_norm = true;
  m.final_norm = false;  // each layer ends with one
  m.tied_output = keys.Flag("tie_word_embeddings", true);
  const std::string head = keys.FirstWord("architectures");
  if (head == "BertForSequenceClassification") {
    m.head = Head::kPooledClassifier;
    m.classes = Classes(keys);
  } else if (head.empty() || head == "BertForMaskedLM" || head == "BertModel") {
    m.head = Head::kMaskedLanguage;
  } else {
    keys.Fail(absl::StrCat("'architectures' names ", head,
                           "; of BERT, BertForMaskedLM and BertForSequenceClassification are "
                           "known: write the one that is nearer"));
  }
  if (keys.Flag("is_decoder", false) || keys.Flag("add_cross_attention", false)) {
    keys.Fail("'is_decoder' or 'add_cross_attention' is true; BERT is known as an encoder alone");
  }
  if (const std::string kind = keys.Word("position_embedding_type", "absolute");
      kind != "absolute") {
    keys.Fail(absl::StrCat("'position_embedding_type' is '", kind, "'; only 'absolute' is known"));
  }
  return m;
}

Model ReadVit(Keys& keys) {
  Model m = ReadEncoder(keys);
  const std::uint64_t image = keys.Count("image_size", 224);
  const std::uint64_t patch = keys.Count("patch_size", 16);
  const std::uint64_t channels = keys.Count("num_channels", 3);
  constexpr std::uint64_t kSideMax = 1 << 16;
  if (patch == 0 || patch > image || image > kSideMax || channels > kSideMax) {
    keys.Fail(absl::StrCat("'image_size' is ", image, ", 'patch_size' ", patch,
                           " and 'num_channels' ", channels,
                           "; patches must fit into the image, and nothing be above ", kSideMax));
    return m;
  }
  m.patch_elements = channels * patch * patch;
  m.context = (image / patch) * (image / patch) + 1;
  m.position_rows = m.context;
  m.other_rows = 1;  // the token of the class
  m.qkv_bias = keys.Flag("qkv_bias", true);
  m.tied_output = false;
  m.head = Head::kClassifier;
  m.classes = Classes(keys);
  const std::string head = keys.FirstWord("architectures");
  if (!head.empty() && head != "ViTModel" && head != "ViTForImageClassification") {
    keys.Fail(absl::StrCat("'architectures' names ", head,
                           "; of ViT, ViTForImageClassification alone is known"));
  }
  return m;
}

Model ReadT5(Keys& keys) {
  Model m;
  m.fused_qkv = m.qkv_bias = m.attention_output_bias = m.mlp_bias = false;
  m.norm_shift = false;
  m.encoder_layers = keys.Count("num_layers");
  m.layers = m.encoder_layers + keys.Count("num_decoder_layers", m.encoder_layers);
  m.hidden = keys.Count("d_model");
  m.heads = m.kv_heads = keys.Count("num_heads");
  m.head_dim = keys.Count("d_kv");
  m.intermediate = keys.Count("d_ff");
  m.vocabulary = keys.Count("vocab_size", 32128);
  m.context = keys.Count("n_positions", 512);
  m.relative_buckets = keys.Count("relative_attention_num_buckets", 32);
  m.gated_mlp = absl::StartsWith(keys.Word("feed_forward_proj", "relu"), "gated-");
  m.tied_output = keys.Flag("tie_word_embeddings", true);
  const std::string head = keys.FirstWord("architectures");
  if (!keys.Flag("is_encoder_decoder", true) || absl::StrContains(head, "Encoder")) {
    keys.Fail(
        "'is_encoder_decoder' or 'architectures' says that there is an encoder alone; T5 is "
        "known with both, as T5ForConditionalGeneration");
  }
  return m;
}

Model ReadGptNeox(Keys& keys) {
  Model m;
  m.layers = keys.Count("num_hidden_layers");
  m.hidden = keys.Count("hidden_size");
  m.heads = keys.Count("num_attention_heads");
  m.kv_heads = m.heads;
  m.head_dim = HeadDim(m.hidden, m.heads, &keys);
  m.intermediate = keys.Count("intermediate_size");
  m.vocabulary = keys.Count("vocab_size");
  m.context = keys.Count("max_position_embeddings", 2048);
  m.qkv_bias = m.attention_output_bias = keys.Flag("attention_bias", true);
  m.parallel_block = keys.Flag("use_parallel_residual", true);
  m.tied_output = keys.Flag("tie_word_embeddings", false);
  return m;
}

Model ReadFalcon(Keys& keys) {
  Model m;
  m.layers = keys.Count("num_hidden_layers");
  m.hidden = keys.Count("hidden_size");
  m.heads = keys.Count("num_attention_heads");
  m.head_dim = HeadDim(m.hidden, m.heads, &keys);
  m.intermediate = keys.Count("ffn_hidden_size", 4 * m.hidden);
  m.vocabulary = keys.Count("vocab_size");
  m.context = keys.Count("max_position_embeddings", 2048);
  const bool new_decoder = keys.Flag("new_decoder_architecture", false);
  if (new_decoder) {
    m.kv_heads = keys.Count("num_kv_heads", m.heads);
    m.norms_per_layer = keys.Count("num_ln_in_parallel_attn", 2);
  } else {
    m.kv_heads = keys.Flag("multi_query", true) ? 1 : m.heads;
    m.norms_per_layer = keys.Flag("parallel_attn", true) ? 1 : 2;
  }
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = keys.Flag("bias", false);
  m.tied_output = keys.Flag("tie_word_embeddings", true);
  return m;
}

struct Type {
  const char* name;
  Model (*read)(Keys&);
};
constexpr Type kTypes[] = {
    {"gpt2", ReadGpt2},         {"opt", ReadOpt},         {"llama", ReadLlama},
    {"mistral", ReadLlamaLike}, {"mixtral", ReadMixtral}, {"qwen2", ReadQwen2},
    {"qwen3", ReadQwen3},       {"gemma", ReadGemma},     {"gemma2", ReadGemma2},
    {"phi3", ReadPhi3},         {"bert", ReadBert},       {"gemma3_text", ReadGemma3Text},
    {"gpt_neox", ReadGptNeox},  {"falcon", ReadFalcon},   {"t5", ReadT5},
    {"vit", ReadVit},
};

absl::Status UnknownType(const std::string& name, const Keys& keys) {
  std::string text = absl::StrCat("'model_type' is '", name, "'; the types known are");
  for (const Type& type : kTypes) {
    absl::StrAppend(&text, &type == kTypes ? ": " : ", ", type.name);
  }
  if (keys.Has("text_config")) {
    absl::StrAppend(&text,
                    ". The language model that it holds is 'text_config': plan a file with that "
                    "object alone");
  } else {
    absl::StrAppend(&text,
                    ". Any model can be planned from a step that was measured: run a few, then "
                    "'geminictl trace save FILE' and 'geminictl plan --trace FILE'");
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

absl::StatusOr<Model> ModelFromHuggingFace(const std::string& json) {
  base::JsonValue root;
  base::JsonError error;
  if (!base::ParsePythonJson(json, &root, &error)) {
    return absl::InvalidArgumentError(absl::StrCat("line ", error.position.line, ", column ",
                                                   error.position.column, ": ", error.problem));
  }
  if (root.type != base::JsonValue::Type::kObject) {
    return absl::InvalidArgumentError("the file must hold one object, as config.json does");
  }
  Keys keys(root);
  const std::string name = keys.Word("model_type");
  GEMINID_RETURN_IF_ERROR(keys.status());
  const Type* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const Type& known) { return name == known.name; });
  if (type == std::end(kTypes)) return UnknownType(name, keys);
  Model model = type->read(keys);
  model.name = name;
  GEMINID_RETURN_IF_ERROR(keys.status());
  GEMINID_RETURN_IF_ERROR(Validate(model));
  return model;
}

}  // namespace geminid::forecast
