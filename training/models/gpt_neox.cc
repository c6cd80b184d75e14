#include "absl/strings/str_cat.h"
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

// The names of the three tanh forms give results that differ only by rounding.
void ReadActivation(ConfigKeys& keys, const char* key, ModelConfig* model) {
  const std::string name = keys.Word(key, Name(model->usual_activation()));
  for (const Activation known : {Activation::kGelu, Activation::kGeluErf, Activation::kRelu}) {
    if (name == Name(known)) model->mlp_activation = known;
  }
  if (name == "gelu_fast" || name == "gelu_pytorch_tanh") model->mlp_activation = Activation::kGelu;
  if (model->mlp_activation) return;
  keys.Fail(absl::StrCat("'", key, "' is '", name,
                         "'; gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and relu are known"));
}

// Transformers reads the base and the share of rotary positions from 'rope_parameters', else from
// keys of this family. Version 4 also wrote the share as 'partial_rotary_factor'. Version 5 drops
// the family's key and leaves 'partial_rotary_factor' in the file, but never reads it.
void ReadGptNeox(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& sizes = from.sizes;
  model->layers = sizes.Count("num_hidden_layers", 44);
  model->hidden = sizes.Count("hidden_size", 6144);
  model->heads = model->kv_heads = sizes.Count("num_attention_heads", 64);
  model->intermediate = sizes.Count("intermediate_size", 24576);
  model->vocabulary = sizes.Count("vocab_size", 50432);
  model->positions = sizes.Count("max_position_embeddings", 2048);
  model->tied = sizes.Flag("tie_word_embeddings", false);
  model->attention_bias = sizes.Flag("attention_bias", true);
  model->parallel_block = sizes.Flag("use_parallel_residual", true);
  ConfigKeys& training = from.training;
  model->norm_epsilon = training.Real("layer_norm_eps", 1e-5);
  model->rotary_share = training.Real("rotary_pct", model->turned_share());
  training.Require(!training.Has("rotary_pct") ||
                       training.Real(kRotaryShareKey, *model->rotary_share) == *model->rotary_share,
                   "'partial_rotary_factor' is not 'rotary_pct'");
  ReadRotary(from, "rotary_emb_base", 10000, model);
  ReadActivation(training, "hidden_act", model);
  ReadSpecialTokens(from, 0, 2, model);
}

void WriteGptNeox(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("attention_bias").Value(model.output_bias());
  json->Key("hidden_act").Value(Name(model.activation()));
  json->Key("layer_norm_eps").Real(model.norm_epsilon);
  json->Key("rotary_pct").Real(model.turned_share());
  WriteRotary(model, "rotary_emb_base", json);
  json->Key("use_parallel_residual").Value(model.parallel());
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

}  // namespace

const FamilyTraits kGptNeoxFamily = {.name = "gpt_neox",
                                     .architecture = "GPTNeoXForCausalLM",
                                     .norms = {.shift = true},
                                     .rotary_share = 0.25,
                                     .projection = Projection::kByHead,
                                     .output_bias = true,
                                     .parallel = true,
                                     .activation = Activation::kGeluErf,
                                     .names = {.tokens = "gpt_neox.embed_in.weight",
                                               .layers = "gpt_neox.layers.",
                                               .final_norm = "gpt_neox.final_layer_norm",
                                               .output = "embed_out",
                                               .qkv = "attention.query_key_value",
                                               .attention_output = "attention.dense",
                                               .mlp_input = "mlp.dense_h_to_4h",
                                               .mlp_output = "mlp.dense_4h_to_h"},
                                     .read = ReadGptNeox,
                                     .write = WriteGptNeox};

}  // namespace geminid::trainer
