// Models with an encoder that can only be forecast: ViT, an encoder alone, and T5, which also has a
// decoder.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

void ReadVit(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& keys = from.sizes;
  ReadEncoder(keys, model);
  const uint64_t image = keys.Count("image_size", 224);
  const uint64_t patch = keys.Count("patch_size", 16);
  const uint64_t channels = keys.Count("num_channels", 3);
  constexpr uint64_t kSideMax = 1 << 16;
  if (patch == 0 || patch > image || image > kSideMax || channels > kSideMax) {
    return keys.Fail(absl::StrCat(
        "'image_size' is ", image, ", 'patch_size' ", patch, " and 'num_channels' ", channels,
        "; patches must fit into the image, and nothing be above ", kSideMax));
  }
  model->vocabulary = 0;
  model->untrained.patch_elements = channels * patch * patch;
  model->positions = (image / patch) * (image / patch) + 1;
  model->untrained.other_rows = 1;  // the class token
  model->untrained.qkv_bias = keys.Flag("qkv_bias", true);
  model->untrained.classes = ReadClasses(keys);
  const std::string head = keys.FirstWord("architectures");
  if (!head.empty() && head != "ViTModel" && head != "ViTForImageClassification") {
    keys.Fail(absl::StrCat("'architectures' names ", head,
                           "; of ViT, ViTForImageClassification alone is known"));
  }
}

void ReadT5(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& keys = from.sizes;
  uint64_t& encoder_layers = model->untrained.encoder_layers;
  encoder_layers = keys.Count("num_layers");
  model->layers = encoder_layers + keys.Count("num_decoder_layers", encoder_layers);
  model->hidden = keys.Count("d_model");
  model->heads = model->kv_heads = keys.Count("num_heads");
  model->head_width = keys.Count("d_kv");
  model->intermediate = keys.Count("d_ff");
  model->vocabulary = keys.Count("vocab_size", 32128);
  model->positions = keys.Count("n_positions", 512);
  model->untrained.relative_buckets = keys.Count("relative_attention_num_buckets", 32);
  model->untrained.gated_mlp = absl::StartsWith(keys.Word("feed_forward_proj", "relu"), "gated-");
  model->tied = keys.Flag("tie_word_embeddings", true);
  const std::string head = keys.FirstWord("architectures");
  keys.Require(keys.Flag("is_encoder_decoder", true) && !absl::StrContains(head, "Encoder"),
               "'is_encoder_decoder' or 'architectures' says that there is an encoder alone; T5 is "
               "known with both, as T5ForConditionalGeneration");
}

}  // namespace

const FamilyTraits kVitFamily = {.name = "vit",
                                 .norms = {.shift = true},
                                 .learned_positions = true,
                                 .output_bias = true,
                                 .encoder = true,
                                 .head = Head::kClassifier,
                                 .read = ReadVit};
const FamilyTraits kT5Family = {.name = "t5", .tied = true, .read = ReadT5};

}  // namespace geminid::trainer
