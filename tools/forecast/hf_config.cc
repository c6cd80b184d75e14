#include "tools/forecast/hf_config.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace geminid::forecast {
namespace {

using base::JsonValue;

// Reads the keys of the object and remembers the first that is wrong.
class Keys {
 public:
  explicit Keys(const JsonValue& object) : object_(object) {}

  // Absent or null: `otherwise`, or an error if there is none.
  std::uint64_t Count(const char* key, std::optional<std::uint64_t> otherwise = std::nullopt) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return Absent(key, otherwise);
    std::uint64_t count = 0;
    // SimpleAtoi takes spaces and signs; the parser has let through neither but '-'.
    if (value->type == JsonValue::Type::kNumber && value->text[0] != '-' &&
        absl::SimpleAtoi(value->text, &count)) {
      return count;
    }
    Fail(absl::StrCat("'", key, "' must be a whole number and not negative", Where(*value)));
    return 0;
  }

  bool Flag(const char* key, bool otherwise) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->type == JsonValue::Type::kBool) return value->boolean;
    Fail(absl::StrCat("'", key, "' must be true or false", Where(*value)));
    return false;
  }

  std::string Word(const char* key) {
    const JsonValue* value = Find(key);
    if (value != nullptr && value->type == JsonValue::Type::kString) return value->text;
    Fail(value == nullptr ? absl::StrCat("'", key, "' is missing")
                          : absl::StrCat("'", key, "' must be a string", Where(*value)));
    return "";
  }

  void Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  absl::Status status() const {
    return problem_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problem_);
  }

 private:
  const JsonValue* Find(const char* key) const {
    for (const JsonValue::Member& member : object_.members) {
      if (member.key == key && member.value.type != JsonValue::Type::kNull) return &member.value;
    }
    return nullptr;
  }

  std::uint64_t Absent(const char* key, std::optional<std::uint64_t> otherwise) {
    if (!otherwise.has_value()) Fail(absl::StrCat("'", key, "' is missing"));
    return otherwise.value_or(0);
  }

  static std::string Where(const JsonValue& value) {
    return absl::StrCat(" (line ", value.position.line, ")");
  }

  const JsonValue& object_;
  std::string problem_;
};

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
    {"gpt2", ReadGpt2},         {"opt", ReadOpt},     {"llama", ReadLlama},
    {"mistral", ReadLlamaLike}, {"qwen2", ReadQwen2}, {"gpt_neox", ReadGptNeox},
    {"falcon", ReadFalcon},
};

absl::StatusOr<Type> FindType(const std::string& name) {
  std::string names;
  for (const Type& type : kTypes) {
    if (name == type.name) return type;
    absl::StrAppend(&names, names.empty() ? "" : ", ", type.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'model_type' is '", name, "'; the types known are: ", names,
                   ". A model of the same shape can be described by --model, --layers and "
                   "--hidden"));
}

}  // namespace

absl::StatusOr<Model> ModelFromHuggingFace(const std::string& json) {
  JsonValue root;
  base::JsonError error;
  if (!base::ParseJson(json, &root, &error)) {
    return absl::InvalidArgumentError(absl::StrCat("line ", error.position.line, ", column ",
                                                   error.position.column, ": ", error.problem));
  }
  if (root.type != JsonValue::Type::kObject) {
    return absl::InvalidArgumentError("the file must hold one object, as config.json does");
  }
  Keys keys(root);
  const std::string name = keys.Word("model_type");
  if (!keys.status().ok()) return keys.status();
  const absl::StatusOr<Type> type = FindType(name);
  if (!type.ok()) return type.status();
  Model model = type->read(keys);
  model.name = name;
  if (!keys.status().ok()) return keys.status();
  if (absl::Status status = Validate(model); !status.ok()) return status;
  return model;
}

}  // namespace geminid::forecast
