// T5, an encoder and a decoder, which is forecast alone.
#include "absl/strings/match.h"
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

void ReadT5(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& keys = from.sizes;
  uint64_t& encoder_layers = model->forecast_only.encoder_layers;
  encoder_layers = keys.Count("num_layers");
  model->layers = encoder_layers + keys.Count("num_decoder_layers", encoder_layers);
  model->hidden = keys.Count("d_model");
  model->heads = model->kv_heads = keys.Count("num_heads");
  model->head_width = keys.Count("d_kv");
  model->intermediate = keys.Count("d_ff");
  model->vocabulary = keys.Count("vocab_size", 32128);
  model->positions = keys.Count("n_positions", 512);
  model->forecast_only.relative_buckets = keys.Count("relative_attention_num_buckets", 32);
  model->forecast_only.gated_mlp =
      absl::StartsWith(keys.Word("feed_forward_proj", "relu"), "gated-");
  model->tied = keys.Flag("tie_word_embeddings", true);
  const std::string head = keys.FirstWord("architectures");
  keys.Require(keys.Flag("is_encoder_decoder", true) && !absl::StrContains(head, "Encoder"),
               "'is_encoder_decoder' or 'architectures' says that there is an encoder alone; T5 is "
               "known with both, as T5ForConditionalGeneration");
}

}  // namespace

const FamilyTraits kT5Family = {.name = "t5", .tied = true, .read = ReadT5};

}  // namespace geminid::trainer
