#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

void ReadGpt2(ConfigReader& from, ModelConfig* model) {
  ConfigKeys& sizes = from.sizes;
  model->layers = sizes.Count("n_layer");
  model->hidden = sizes.Count("n_embd");
  model->heads = model->kv_heads = sizes.Count("n_head");
  model->intermediate = sizes.Count("n_inner", 4 * model->hidden);
  model->vocabulary = sizes.Count("vocab_size", 50257);
  model->positions = sizes.Count("n_positions", 1024);
  model->tied = sizes.Flag("tie_word_embeddings", true);
  ConfigKeys& training = from.training;
  model->norm_epsilon = training.Real("layer_norm_epsilon", 1e-5);
  constexpr uint64_t kEndOfText = 50256;
  ReadSpecialTokens(from, kEndOfText, kEndOfText, model);
  const std::string activation = training.Word("activation_function", "gelu_new");
  training.Require(activation == "gelu_new" || activation == "gelu_pytorch_tanh",
                   "'activation_function' is neither gelu_new nor gelu_pytorch_tanh");
  training.Require(training.Flag("scale_attn_weights", true), "'scale_attn_weights' is false");
  training.Require(!training.Flag("scale_attn_by_inverse_layer_idx", false),
                   "'scale_attn_by_inverse_layer_idx' is true");
}

void WriteGpt2(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("n_positions").Value(model.position_rows());
  json->Key("n_embd").Value(model.hidden);
  json->Key("n_layer").Value(model.layers);
  json->Key("n_head").Value(model.heads);
  json->Key("n_inner").Value(model.intermediate);
  json->Key("activation_function").Value("gelu_new");
  json->Key("layer_norm_epsilon").Real(model.norm_epsilon);
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

}  // namespace

const FamilyTraits kGpt2Family = {.name = "gpt2",
                                  .architecture = "GPT2LMHeadModel",
                                  .norms = {.shift = true},
                                  .learned_positions = true,
                                  .projection = Projection::kInBlocks,
                                  .output_bias = true,
                                  .tied = true,
                                  .layout = Layout::kInOut,
                                  .names = {.tokens = "transformer.wte.weight",
                                            .positions = "transformer.wpe.weight",
                                            .layers = "transformer.h.",
                                            .final_norm = "transformer.ln_f",
                                            .attention_norm = "ln_1",
                                            .qkv = "attn.c_attn",
                                            .attention_output = "attn.c_proj",
                                            .mlp_norm = "ln_2",
                                            .mlp_input = "mlp.c_fc",
                                            .mlp_output = "mlp.c_proj"},
                                  .read = ReadGpt2,
                                  .write = WriteGpt2};

}  // namespace geminid::trainer
