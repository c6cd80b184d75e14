#include <string>

#include "absl/strings/str_cat.h"
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

ImageShape ReadImage(ConfigKeys& keys) {
  const ImageShape image = {.side = keys.Count("image_size", 224),
                            .patch = keys.Count("patch_size", 16),
                            .channels = keys.Count("num_channels", 3)};
  constexpr uint64_t kSideMax = 1 << 16;
  if (image.patch == 0 || image.patch > image.side || image.side > kSideMax ||
      image.channels > kSideMax) {
    keys.Fail(absl::StrCat("'image_size' is ", image.side, ", 'patch_size' ", image.patch,
                           " and 'num_channels' ", image.channels,
                           "; patches must fit into the image, and nothing be above ", kSideMax));
    return {};
  }
  return image;
}

void ReadVit(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& keys = from.sizes;
  ReadEncoder(keys, model);
  model->image = ReadImage(keys);
  model->vocabulary = 0;
  model->positions = model->image->tokens();
  model->projection_bias = keys.Flag("qkv_bias", true);
  model->classes = ReadClasses(keys);
  const std::string head = keys.FirstWord("architectures");
  if (!head.empty() && head != "ViTModel" && head != "ViTForImageClassification") {
    keys.Fail(absl::StrCat("'architectures' names ", head,
                           "; of ViT, ViTForImageClassification alone is known"));
  }
  ConfigKeys& training = from.training;
  model->norm_epsilon = training.Real("layer_norm_eps", 1e-12);
  model->mlp_activation = ReadActivation(training);
}

// transformers counts the labels by their names, and has other names of its own for two.
void WriteLabels(uint64_t classes, base::JsonWriter* json) {
  json->Key("id2label").BeginObject();
  for (uint64_t i = 0; i < classes; ++i) {
    json->Key(absl::StrCat(i)).Value(absl::StrCat("LABEL_", i));
  }
  json->EndObject();
  json->Key("label2id").BeginObject();
  for (uint64_t i = 0; i < classes; ++i) json->Key(absl::StrCat("LABEL_", i)).Value(i);
  json->EndObject();
}

void WriteVit(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("image_size").Value(model.image->side);
  json->Key("patch_size").Value(model.image->patch);
  json->Key("num_channels").Value(model.image->channels);
  json->Key("qkv_bias").Value(model.qkv_bias());
  json->Key("hidden_act").Value(Name(model.activation()));
  json->Key("layer_norm_eps").Real(model.norm_epsilon);
  WriteLabels(model.classes, json);
}

}  // namespace

const FamilyTraits kVitFamily = {.name = "vit",
                                 .architecture = "ViTForImageClassification",
                                 .norms = {.shift = true},
                                 .learned_positions = true,
                                 .output_bias = true,
                                 .encoder = true,
                                 .head = Head::kClassifier,
                                 .activation = Activation::kGeluErf,
                                 .names = {.positions = "vit.embeddings.position_embeddings",
                                           .patches = "vit.embeddings.patch_embeddings.projection",
                                           .class_token = "vit.embeddings.cls_token",
                                           .layers = "vit.encoder.layer.",
                                           .final_norm = "vit.layernorm",
                                           .output = "classifier",
                                           .attention_norm = "layernorm_before",
                                           .query = "attention.attention.query",
                                           .key = "attention.attention.key",
                                           .value = "attention.attention.value",
                                           .attention_output = "attention.output.dense",
                                           .mlp_norm = "layernorm_after",
                                           .mlp_input = "intermediate.dense",
                                           .mlp_output = "output.dense"},
                                 .read = ReadVit,
                                 .write = WriteVit};

}  // namespace geminid::trainer
