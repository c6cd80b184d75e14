// The description of a model, for training, for forecasts and for config.json; and presets, which
// are models with a name.
#ifndef GEMINID_TRAINING_MODELS_MODEL_CONFIG_H_
#define GEMINID_TRAINING_MODELS_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/models/family.h"
#include "training/models/masking.h"
#include "training/models/rotary_scaling.h"

namespace geminid::trainer {

// The vocabulary of models whose tokens are bytes.
inline constexpr uint64_t kByteVocabulary = 256;

// Properties that no trained model has.
struct ForecastOnlyShape {
  // The first layers are an encoder, whose tokens attend to each other. The others are a decoder,
  // whose tokens attend to earlier ones and, by cross attention, to the encoder's output. 0 for
  // families in which all layers are an encoder.
  uint64_t encoder_layers = 0;
  // The width of the token table if it is not hidden. Two matrices then convert to and from hidden.
  uint64_t embedding_width = 0;
  uint64_t relative_buckets = 0;  // of distance, each with a bias per head, once a stack
  // Unset: as is usual in the family.
  std::optional<Head> head = std::nullopt;
  std::optional<bool> gated_mlp = std::nullopt;
  std::optional<bool> last_norm = std::nullopt;
  std::optional<uint64_t> norms_per_layer = std::nullopt;
};

// Square images, cut into square patches row by row. Each patch is a token, after one that the
// image's class is read from.
struct ImageShape {
  uint64_t side = 0;  // in pixels, as `patch`
  uint64_t patch = 16;
  uint64_t channels = 3;

  uint64_t patches_per_side() const { return patch == 0 ? 0 : side / patch; }
  uint64_t patches() const { return patches_per_side() * patches_per_side(); }
  uint64_t tokens() const { return patches() + 1; }
  uint64_t patch_elements() const { return channels * patch * patch; }
  uint64_t elements() const { return channels * side * side; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// Plain values; what is unset is as is usual in the family.
struct ModelConfig {
  Family family = Family::kGpt2;
  uint64_t layers = 0;  // of encoder and decoder together
  uint64_t hidden = 0;
  uint64_t heads = 0;
  // Divides heads; if smaller, grouped queries (not GPT-2, OPT and GPT-NeoX).
  uint64_t kv_heads = 0;
  // The width of one head; unset: hidden / heads. Not GPT-2, OPT and GPT-NeoX.
  std::optional<uint64_t> head_width = std::nullopt;
  uint64_t intermediate = 0;  // width of the MLP, or of each expert
  uint64_t context = 0;       // tokens per training sequence
  uint64_t vocabulary = kByteVocabulary;
  // The number of positions that the model supports, at least `context`; unset: `context`.
  std::optional<uint64_t> positions = std::nullopt;
  double norm_epsilon = 1e-5;
  // Gains and shifts of the norms are fp32 even if the weights have another type.
  bool fp32_norms = false;
  double rotary_theta = 10000;  // default of LLaMA 2; unused by GPT-2 and OPT
  RotaryScaling rotary_scaling = {};
  // The share of a head's elements that rotates: the first elements.
  std::optional<double> rotary_share = std::nullopt;
  // The number of tokens to which a token attends at most, including itself; 0: all before it. Not
  // GPT-2, OPT and GPT-NeoX.
  uint64_t window = 0;
  // Whether the projections of queries, keys, values and of attention's output have biases.
  std::optional<bool> attention_bias = std::nullopt;
  // Of queries, keys and values alone; unset: as `attention_bias`.
  std::optional<bool> projection_bias = std::nullopt;
  std::optional<bool> mlp_bias = std::nullopt;
  // Whether the MLP reads the layer's input, as attention does, and not attention's output.
  // GPT-NeoX alone.
  std::optional<bool> parallel_block = std::nullopt;
  // The activation of an MLP without a gate.
  std::optional<Activation> mlp_activation = std::nullopt;
  // Whether the output layer is the token table.
  std::optional<bool> tied = std::nullopt;
  // The rows of the token type table. All tokens are of the first type.
  std::optional<uint64_t> token_types = std::nullopt;
  // The mask token and special tokens of a masked language model; unset: unknown.
  std::optional<Masking> masking = std::nullopt;
  // In place of tokens of a vocabulary, which then has none.
  std::optional<ImageShape> image = std::nullopt;
  uint64_t classes = 0;  // of a classifier
  ForecastOnlyShape forecast_only = {};

  // Special tokens of the tokenizer; models of bytes have none.
  std::optional<uint64_t> first_token = std::nullopt;  // before a text
  std::vector<uint64_t> end_tokens = {};               // each ends a text

  uint64_t experts = 0;            // of each layer (Mixtral only)
  uint64_t experts_per_token = 0;  // the experts with the largest logits, weighted by their softmax
  // The factor of the routers' load-balancing loss in the gradient, like transformers'
  // router_aux_loss_coef. The loss is the mean over sequences and layers. 0: no such loss.
  double balance_loss = 0;
  // In training and validation, an expert computes at most this many times its even share of a
  // sequence's tokens (training/nn/parallel/experts/routing.h). The expert adds nothing to further
  // tokens. 0: no limit. Generating has no limit either.
  double expert_capacity = 0;

  // The number of ranks that share each layer (training/nn/layer_share.h). `heads`, `kv_heads` and
  // `intermediate` are those of one rank. 1: the layers are whole.
  uint64_t layer_parts = 1;

  // LoRA (Hu et al. 2021, arXiv:2106.09685): each matrix of a layer gets two thin matrices, and
  // only these are trained: y = x W + alpha / rank (x A) B. 0: none.
  uint64_t lora_rank = 0;
  double lora_alpha = 0;

  const FamilyTraits& traits() const { return TraitsOf(family); }
  bool like_gpt_neox() const { return family == Family::kGptNeox; }

  uint64_t head_dim() const { return head_width.value_or(hidden / (heads * layer_parts)); }
  uint64_t query_columns() const { return heads * head_dim(); }
  uint64_t kv_columns() const { return kv_heads * head_dim(); }
  // kernels::AttentionShape::window: 0 if no sequence is longer than the window.
  uint64_t attention_window() const { return window < context ? window : 0; }
  bool qkv_bias() const { return projection_bias.value_or(output_bias() || traits().qkv_bias); }
  // Of what attention adds.
  bool output_bias() const { return attention_bias.value_or(traits().output_bias); }
  bool norms_heads() const { return traits().norms.heads; }
  bool norms_after() const { return traits().norms.after; }

  // Also true for the relative positions of T5.
  bool rotary() const { return !traits().learned_positions; }
  // The share of a head's elements that rotates.
  double turned_share() const { return rotary_share.value_or(traits().rotary_share); }
  uint64_t rotary_columns() const {  // of a head, rounded down as transformers does
    return static_cast<uint64_t>(static_cast<double>(head_dim()) * turned_share());
  }
  uint64_t position_rows() const { return positions.value_or(context); }
  // The learned position table: the row of the first token, and the number of rows; 0: no table.
  uint64_t first_position_row() const { return traits().first_position_row; }
  uint64_t position_table_rows() const {
    return rotary() ? 0 : first_position_row() + position_rows();
  }

  // Norms have gains and shifts; else gains alone.
  bool layer_norms() const { return traits().norms.shift; }
  uint64_t norms_per_layer() const {
    return forecast_only.norms_per_layer.value_or(traits().norms.per_layer);
  }
  bool last_norm() const { return forecast_only.last_norm.value_or(true); }

  // The MLP has three matrices (SwiGLU); else two. MLPs beside LayerNorm have two, with biases, by
  // default.
  bool gated_mlp() const { return forecast_only.gated_mlp.value_or(!layer_norms()); }
  uint64_t mlp_inputs() const { return gated_mlp() ? 2 : 1; }  // matrices that read the MLP's input
  bool has_mlp_bias() const { return mlp_bias.value_or(layer_norms()); }
  Activation activation() const { return mlp_activation.value_or(usual_activation()); }
  Activation usual_activation() const { return traits().activation; }
  // Attention and MLP both read the input of their layer.
  bool parallel() const { return parallel_block.value_or(traits().parallel); }
  // Whether a router chooses among several MLPs. A part of a model may have one expert.
  bool routed() const { return experts > 1 || family == Family::kMixtral; }
  uint64_t mlps() const { return routed() ? experts : 1; }  // of each layer
  // The number of MLPs that compute one token.
  uint64_t mlps_per_token() const { return routed() ? experts_per_token : 1; }

  bool tied_output() const { return tied.value_or(traits().tied); }
  uint64_t table_columns() const {
    return forecast_only.embedding_width == 0 ? hidden : forecast_only.embedding_width;
  }
  Head head() const { return forecast_only.head.value_or(traits().head); }
  bool classifies() const {
    return head() == Head::kClassifier || head() == Head::kPooledClassifier;
  }
  // The model predicts masked tokens, not the next tokens.
  bool masks() const { return head() == Head::kMaskedLanguage; }
  // The output layer reads the tokens that have a target, and not all of them.
  bool chooses_rows() const { return masks() || classifies(); }
  // Of a whole sequence of so many tokens, how many have a target at most.
  uint64_t targets_of(uint64_t tokens) const {
    return classifies() ? 1 : masks() ? MaskedTokens(tokens) : tokens;
  }
  uint64_t logits() const { return classifies() ? classes : vocabulary; }  // of a target
  uint64_t token_type_rows() const { return token_types.value_or(traits().token_types); }
  bool encodes() const { return traits().encoder; }  // all layers form an encoder
  uint64_t encoder_layers() const { return encodes() ? layers : forecast_only.encoder_layers; }
  bool is_encoder(uint64_t layer) const { return layer < encoder_layers(); }
  uint64_t decoder_layers() const { return layers - encoder_layers(); }
  // The model has an encoder and a decoder. Each decoder layer has cross attention.
  bool has_both() const { return encoder_layers() > 0 && decoder_layers() > 0; }
};

enum class Operator : uint8_t {
  kEmbedding,
  kEncoderAttention,  // every token attends to its whole sequence
  kAttention,         // causal: a token attends to earlier tokens
  kCrossAttention,    // every token of the decoder attends to all tokens of the encoder
  kMlp,
  kOutput,
};
inline bool IsAttention(Operator op) {
  return op == Operator::kEncoderAttention || op == Operator::kAttention ||
         op == Operator::kCrossAttention;
}
// The operators of a layer are attention, cross attention and MLP.
inline bool IsPartOfLayer(Operator op) { return IsAttention(op) || op == Operator::kMlp; }

// The operators of a layer in the order of the forward pass.
std::vector<Operator> PartsOfLayer(const ModelConfig& model, uint64_t layer);

// The usual MLP width: 4 hidden (GPT-2, OPT and GPT-NeoX); 8/3 hidden (LLaMA and the like) or 7/2
// hidden (Mixtral), rounded up to a multiple of 64.
uint64_t DefaultIntermediate(Family family, uint64_t hidden);

// Eight experts, two for each token, with the balance loss of the Mixtral 8x7B checkpoints.
inline constexpr uint64_t kUsualExperts = 8;
inline constexpr uint64_t kUsualExpertsPerToken = 2;
inline constexpr double kUsualBalanceLoss = 0.02;

// Whether the model can be trained. INVALID_ARGUMENT names the wrong value and right ones.
absl::Status Validate(const ModelConfig& config);

// The exact number of elements of all tensors (training/models/parameters.h).
uint64_t CountParameters(const ModelConfig& config);
// CountParameters without the experts that a token does not visit.
uint64_t CountActiveParameters(const ModelConfig& config);

// The elements of the matrices that one operator multiplies, with `mlps` MLPs in a layer. The token
// table does not count: rows are looked up.
uint64_t MatrixElements(const ModelConfig& config, Operator op, uint64_t mlps);

// The floating-point operations of training on one token. Each weight of a matrix product takes 6
// (2 forward, 4 backward). Each of the context's tokens that attention may see takes 12 layers *
// heads * head_dim. Only the experts that the token visits count. By convention, recomputation to
// save memory does not count (arXiv:2204.02311, appendix B).
double FlopsPerToken(const ModelConfig& config);
double LayerFlopsPerToken(const ModelConfig& config);   // of one layer
double OutputFlopsPerToken(const ModelConfig& config);  // of the output layer

// A model with a name. Its tokens are bytes, whatever the original used. So a preset named after a
// published model has the same shape but fewer parameters.
struct Preset {
  const char* name;
  ModelConfig config;
};
std::span<const Preset> Presets();

// NOT_FOUND lists the names.
absl::StatusOr<ModelConfig> FindPreset(const std::string& name);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_MODEL_CONFIG_H_
