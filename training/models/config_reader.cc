#include "training/models/config_reader.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

using Kind = RotaryScaling::Kind;

void ReadYarn(ConfigKeys& rope, RotaryScaling* scaling) {
  scaling->beta_fast = rope.Real("beta_fast", 32);
  scaling->beta_slow = rope.Real("beta_slow", 1);
  scaling->rounds_ramp = rope.Flag("truncate", true);
  const double usual =
      YarnAttentionFactor(scaling->factor, rope.Real("mscale", 0), rope.Real("mscale_all_dim", 0));
  scaling->attention_factor = rope.Real("attention_factor", usual);
}

// In families without a rotary share, whole heads turn.
void RefusePartialRotary(ConfigKeys& keys, const ModelConfig& model) {
  keys.Require(model.rotary_share || keys.Real(kRotaryShareKey, 1) == 1,
               "'partial_rotary_factor' is not 1; heads are turned as a whole");
}

// `usual`: the type of an object that names none.
RotaryScaling ReadRotaryScaling(ConfigKeys& rope, uint64_t positions, const char* usual) {
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

}  // namespace

void ReadSpecialTokens(ConfigReader& from, std::optional<uint64_t> usual_first,
                       std::optional<uint64_t> usual_end, ModelConfig* model) {
  const auto usual = [&](std::optional<uint64_t> token) {
    return !token || model->vocabulary == kByteVocabulary ? std::vector<uint64_t>()
                                                          : std::vector<uint64_t>{*token};
  };
  for (const uint64_t first : from.training.Counts("bos_token_id", usual(usual_first))) {
    if (first < model->vocabulary) model->first_token = first;
  }
  for (const uint64_t end : from.training.Counts("eos_token_id", usual(usual_end))) {
    if (end < model->vocabulary) model->end_tokens.push_back(end);
  }
}

void ReadEncoder(ConfigKeys& keys, ModelConfig* model) {
  model->layers = keys.Count("num_hidden_layers");
  model->hidden = keys.Count("hidden_size");
  model->heads = model->kv_heads = keys.Count("num_attention_heads");
  model->intermediate = keys.Count("intermediate_size");
}

Activation ReadActivation(ConfigKeys& keys) {
  const std::string name = keys.Word("hidden_act", "gelu");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  keys.Require(name == "gelu",
               "'hidden_act' is neither gelu, gelu_new, gelu_pytorch_tanh nor relu");
  return Activation::kGeluErf;
}

uint64_t ReadClasses(ConfigKeys& keys) {
  const uint64_t named = keys.Members("id2label");
  return keys.Count("num_labels", named > 0 ? named : 2);
}

void ReadRotary(ConfigReader& from, const char* theta, double usual_theta, ModelConfig* model) {
  ConfigKeys& keys = from.training;
  model->rotary_theta = keys.Real(theta, usual_theta);
  RefusePartialRotary(keys, *model);
  for (const auto& [key, usual] : {std::pair{"rope_parameters", "default"}, {"rope_scaling", ""}}) {
    const base::JsonValue* const value = keys.Find(key);
    if (value == nullptr) continue;
    if (value->type != base::JsonValue::Type::kObject) {
      return keys.Fail(absl::StrCat("'", key, "' must be an object"));
    }
    ConfigKeys rope(*value);
    model->rotary_theta = rope.Real("rope_theta", model->rotary_theta);
    RefusePartialRotary(rope, *model);
    if (model->rotary_share) model->rotary_share = rope.Real(kRotaryShareKey, *model->rotary_share);
    model->rotary_scaling = ReadRotaryScaling(rope, *model->positions, usual);
    uint64_t& original = model->rotary_scaling.original_positions;
    if (original > 0) original = keys.Count("original_max_position_embeddings", original);
    absl::Status status = rope.status();
    if (status.ok()) status = Validate(model->rotary_scaling);
    if (!status.ok()) return keys.Fail(absl::StrCat("'", key, "': ", status.message()));
  }
}

// Writes the older form, which all versions of transformers read. `theta` is the key of the base.
void WriteRotary(const ModelConfig& model, const char* theta, base::JsonWriter* json) {
  json->Key(theta).Real(model.rotary_theta);
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind == Kind::kNone) return;
  json->Key("rope_scaling").BeginObject();
  json->Key("rope_type").Value(Name(scaling.kind));
  json->Key("factor").Real(scaling.factor);
  if (scaling.kind != Kind::kLinear) {
    json->Key("original_max_position_embeddings").Value(scaling.original_positions);
  }
  if (scaling.kind == Kind::kLlama3) {
    json->Key("low_freq_factor").Real(scaling.slow_turns);
    json->Key("high_freq_factor").Real(scaling.fast_turns);
  }
  if (scaling.kind == Kind::kYarn) {
    json->Key("beta_fast").Real(scaling.beta_fast);
    json->Key("beta_slow").Real(scaling.beta_slow);
    json->Key("attention_factor").Real(scaling.attention_factor);
    if (!scaling.rounds_ramp) json->Key("truncate").Value(false);
  }
  json->EndObject();
}

}  // namespace geminid::trainer
