#include "absl/strings/str_cat.h"
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

constexpr char kMaskTokenKey[] = "mask_token_id";
constexpr char kSpecialTokensKey[] = "geminid_special_token_ids";

Head ReadHead(ConfigKeys& keys) {
  const std::string head = keys.FirstWord("architectures");
  if (head == "BertForSequenceClassification") return Head::kPooledClassifier;
  if (!head.empty() && head != "BertForMaskedLM" && head != "BertModel" &&
      head != "BertForPreTraining") {
    keys.Fail(absl::StrCat("'architectures' names ", head,
                           "; of BERT, BertForMaskedLM and BertForSequenceClassification are "
                           "known: write the one that is nearer"));
  }
  return Head::kMaskedLanguage;
}

void ReadMasking(ConfigKeys& keys, ModelConfig* model) {
  if (!keys.Has(kMaskTokenKey)) return;
  model->masking = {.mask_token = keys.Count(kMaskTokenKey),
                    .special_tokens = keys.Counts(kSpecialTokensKey, {})};
}

void ReadBert(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& keys = from.sizes;
  ReadEncoder(keys, model);
  model->vocabulary = keys.Count("vocab_size", 30522);
  model->positions = keys.Count("max_position_embeddings", 512);
  model->token_types = keys.Count("type_vocab_size", 2);
  model->tied = keys.Flag("tie_word_embeddings", true);
  model->forecast_only.head = ReadHead(keys);
  if (model->classifies()) model->classes = ReadClasses(keys);
  keys.Require(!keys.Flag("is_decoder", false) && !keys.Flag("add_cross_attention", false),
               "'is_decoder' or 'add_cross_attention' is true; BERT is known as an encoder alone");
  if (const std::string kind = keys.Word("position_embedding_type", "absolute");
      kind != "absolute") {
    keys.Fail(absl::StrCat("'position_embedding_type' is '", kind, "'; only 'absolute' is known"));
  }
  ConfigKeys& training = from.training;
  model->norm_epsilon = training.Real("layer_norm_eps", 1e-12);
  model->mlp_activation = ReadActivation(training);
  ReadMasking(training, model);
  training.Require(model->masks(),
                   "'architectures' names a classifier; of BERT, BertForMaskedLM alone is trained");
  training.Require(model->tied_output(), "'tie_word_embeddings' is false");
  training.Require(model->token_type_rows() > 0, "'type_vocab_size' is 0");
}

void WriteBert(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("type_vocab_size").Value(model.token_type_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("hidden_act").Value(Name(model.activation()));
  json->Key("layer_norm_eps").Real(model.norm_epsilon);
  json->Key("tie_word_embeddings").Value(true);
  if (!model.masking) return;
  json->Key(kMaskTokenKey).Value(model.masking->mask_token);
  json->Key(kSpecialTokensKey).BeginArray();
  for (const uint64_t token : model.masking->special_tokens) json->Value(token);
  json->EndArray();
}

}  // namespace

const FamilyTraits kBertFamily = {
    .name = "bert",
    .architecture = "BertForMaskedLM",
    .norms = {.shift = true, .after = true},
    .learned_positions = true,
    .output_bias = true,
    .tied = true,
    .encoder = true,
    .head = Head::kMaskedLanguage,
    .token_types = 2,
    .activation = Activation::kGeluErf,
    .names = {.tokens = "bert.embeddings.word_embeddings.weight",
              .positions = "bert.embeddings.position_embeddings.weight",
              .token_types = "bert.embeddings.token_type_embeddings.weight",
              .layers = "bert.encoder.layer.",
              .head_dense = "cls.predictions.transform.dense",
              .head_norm = "cls.predictions.transform.LayerNorm",
              .output_bias = "cls.predictions.bias",
              .embedding_norm = "bert.embeddings.LayerNorm",
              .attention_norm = "output.LayerNorm",
              .query = "attention.self.query",
              .key = "attention.self.key",
              .value = "attention.self.value",
              .attention_output = "attention.output.dense",
              .mlp_norm = "attention.output.LayerNorm",
              .mlp_input = "intermediate.dense",
              .mlp_output = "output.dense"},
    .read = ReadBert,
    .write = WriteBert};

}  // namespace geminid::trainer
