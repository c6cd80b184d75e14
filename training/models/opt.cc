#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

// In OPT-350m norms follow the layers, and the token table is narrower: it can only be forecast.
void ReadOpt(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& sizes = from.sizes;
  model->layers = sizes.Count("num_hidden_layers");
  model->hidden = sizes.Count("hidden_size");
  model->heads = model->kv_heads = sizes.Count("num_attention_heads");
  model->intermediate = sizes.Count("ffn_dim");
  model->vocabulary = sizes.Count("vocab_size", 50272);
  model->positions = sizes.Count("max_position_embeddings", 2048);
  model->tied = sizes.Flag("tie_word_embeddings", true);
  const bool norms_before = sizes.Flag("do_layer_norm_before", true);
  const bool last_norm = !sizes.Flag("_remove_final_layer_norm", false);
  const uint64_t width = sizes.Count("word_embed_proj_dim", model->hidden);
  const bool biases = sizes.Flag("enable_bias", true);
  sizes.Require(sizes.Flag("layer_norm_elementwise_affine", true),
                "'layer_norm_elementwise_affine' is false; norms without parameters are not known");
  model->forecast_only.last_norm = norms_before && last_norm;
  if (width != model->hidden) model->forecast_only.embedding_width = width;
  if (!biases) model->attention_bias = model->mlp_bias = false;
  ReadSpecialTokens(from, 2, 2, model);
  ConfigKeys& training = from.training;
  training.Require(training.Word("activation_function", "relu") == "relu",
                   "'activation_function' is not relu");
  training.Require(norms_before,
                   "'do_layer_norm_before' is false; norms behind the layers are not known");
  training.Require(last_norm, "'_remove_final_layer_norm' is true");
  training.Require(width == model->hidden, "'word_embed_proj_dim' is not 'hidden_size'");
  training.Require(biases, "'enable_bias' is false");
}

void WriteOpt(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("word_embed_proj_dim").Value(model.hidden);
  json->Key("ffn_dim").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("activation_function").Value("relu");
  json->Key("do_layer_norm_before").Value(true);
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

}  // namespace

const FamilyTraits kOptFamily = {.name = "opt",
                                 .architecture = "OPTForCausalLM",
                                 .norms = {.shift = true},
                                 .learned_positions = true,
                                 .first_position_row = 2,
                                 .output_bias = true,
                                 .tied = true,
                                 .activation = Activation::kRelu,
                                 .names = {.tokens = "model.decoder.embed_tokens.weight",
                                           .positions = "model.decoder.embed_positions.weight",
                                           .layers = "model.decoder.layers.",
                                           .final_norm = "model.decoder.final_layer_norm",
                                           .attention_norm = "self_attn_layer_norm",
                                           .attention_output = "self_attn.out_proj",
                                           .mlp_norm = "final_layer_norm",
                                           .mlp_input = "fc1",
                                           .mlp_output = "fc2"},
                                 .read = ReadOpt,
                                 .write = WriteOpt};

}  // namespace geminid::trainer
