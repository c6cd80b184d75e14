// Falcon and PaLM: the attention and the MLP of a layer may read the same norm.
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

void ReadFalcon(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& sizes = from.sizes;
  model->layers = sizes.Count("num_hidden_layers");
  model->hidden = sizes.Count("hidden_size");
  model->heads = sizes.Count("num_attention_heads");
  model->intermediate = sizes.Count("ffn_hidden_size", 4 * model->hidden);
  model->vocabulary = sizes.Count("vocab_size");
  model->positions = sizes.Count("max_position_embeddings", 2048);
  if (sizes.Flag("new_decoder_architecture", false)) {
    model->kv_heads = sizes.Count("num_kv_heads", model->heads);
    model->forecast_only.norms_per_layer = sizes.Count("num_ln_in_parallel_attn", 2);
  } else {
    model->kv_heads = sizes.Flag("multi_query", true) ? 1 : model->heads;
    model->forecast_only.norms_per_layer = sizes.Flag("parallel_attn", true) ? 1 : 2;
  }
  model->attention_bias = model->mlp_bias = sizes.Flag("bias", false);
  model->tied = sizes.Flag("tie_word_embeddings", true);
}

}  // namespace

const FamilyTraits kFalconFamily = {.name = "falcon",
                                    .norms = {.shift = true},
                                    .projection = Projection::kByHead,
                                    .tied = true,
                                    .read = ReadFalcon};
const FamilyTraits kPalmFamily = {.name = "palm", .norms = {.per_layer = 1}, .tied = true};

}  // namespace geminid::trainer
