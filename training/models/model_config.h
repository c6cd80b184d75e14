// The description of a model: what the trainer trains, what a forecast plans and what config.json
// says; and presets, models with a name.
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

// Text is bytes.
inline constexpr uint64_t kByteVocabulary = 256;

// What no model that the trainer trains has.
struct Untrained {
  // The first layers are an encoder, whose tokens see each other; the others a decoder, whose
  // tokens see those before them, and which reads the encoder's output by cross attention. Not of
  // a family whose layers are all an encoder.
  uint64_t encoder_layers = 0;
  // Of the token table where it is not hidden; two matrices then lead in and out.
  uint64_t embedding_width = 0;
  uint64_t patch_elements = 0;    // of an image, in place of tokens; each is projected to hidden
  uint64_t other_rows = 0;        // of a further learned table: a token of the class
  uint64_t relative_buckets = 0;  // of distance, each with a bias per head, once a stack
  uint64_t classes = 0;           // of a classifier
  // Unset: as is usual in the family.
  std::optional<Head> head = std::nullopt;
  std::optional<bool> gated_mlp = std::nullopt;
  std::optional<bool> qkv_bias = std::nullopt;
  std::optional<bool> last_norm = std::nullopt;
  std::optional<uint64_t> norms_per_layer = std::nullopt;
};

// Plain values; what is unset is as is usual in the family.
struct ModelConfig {
  Family family = Family::kGpt2;
  uint64_t layers = 0;  // of encoder and decoder together
  uint64_t hidden = 0;
  uint64_t heads = 0;
  // Divides heads; below it: grouped queries (not GPT-2, OPT and GPT-NeoX).
  uint64_t kv_heads = 0;
  // Of one head; unset: hidden / heads. Not GPT-2, OPT and GPT-NeoX.
  std::optional<uint64_t> head_width = std::nullopt;
  uint64_t intermediate = 0;  // width of the MLP, of each expert if there are several
  uint64_t context = 0;       // tokens per sequence that it is trained with
  uint64_t vocabulary = kByteVocabulary;
  // How many positions the model knows, at least `context`; unset: as many.
  std::optional<uint64_t> positions = std::nullopt;
  double norm_epsilon = 1e-5;
  // Gains and shifts of the norms are fp32 beside weights of another type.
  bool fp32_norms = false;
  double rotary_theta = 10000;  // not GPT-2 and OPT; that of LLaMA 2
  RotaryScaling rotary_scaling = {};
  // The share of a head's elements that is turned, the first ones.
  std::optional<double> rotary_share = std::nullopt;
  // A token sees so many at most, itself the last of them; 0: all before it. Not GPT-2, OPT and
  // GPT-NeoX.
  uint64_t window = 0;
  // Whether queries, keys, values and what attention adds have biases.
  std::optional<bool> attention_bias = std::nullopt;
  std::optional<bool> mlp_bias = std::nullopt;
  // Whether the MLP reads the input of its layer, as attention does, and not what attention adds to
  // it. GPT-NeoX alone.
  std::optional<bool> parallel_block = std::nullopt;
  // Of an MLP without a gate.
  std::optional<Activation> mlp_activation = std::nullopt;
  // Whether the output layer is the token table.
  std::optional<bool> tied = std::nullopt;
  // All tokens are of the first type.
  std::optional<uint64_t> token_types = std::nullopt;
  // What a masked language model's tokens are masked with; unset: it is not known.
  std::optional<Masking> masking = std::nullopt;
  Untrained untrained = {};

  // Special tokens of the tokenizer; none where tokens are bytes.
  std::optional<uint64_t> first_token = std::nullopt;  // before a text
  std::vector<uint64_t> end_tokens = {};               // each ends a text

  uint64_t experts = 0;            // of each layer (Mixtral only)
  uint64_t experts_per_token = 0;  // those with the largest logits, weighed by their softmax
  // What the routers' load-balancing loss counts in the gradient, as transformers'
  // router_aux_loss_coef: of each sequence and layer, by itself; their mean. 0: nothing.
  double balance_loss = 0;
  // In training and validation an expert takes at most this many times its even share of a
  // sequence's tokens (training/nn/parallel/experts/routing.h); what is beyond adds nothing to its
  // token. 0: all, as in generating.
  double expert_capacity = 0;

  // The number of ranks that share each layer (training/nn/layer_share.h): heads, kv_heads and
  // intermediate are those of one rank. 1: the layers are whole.
  uint64_t layer_parts = 1;

  // Beside each matrix of a layer two thin ones, of which only these are trained (LoRA, Hu et al.
  // 2021, arXiv:2106.09685): y = x W + alpha / rank (x A) B. 0: none.
  uint64_t lora_rank = 0;
  double lora_alpha = 0;

  const FamilyTraits& traits() const { return TraitsOf(family); }
  bool like_gpt_neox() const { return family == Family::kGptNeox; }

  uint64_t head_dim() const { return head_width.value_or(hidden / (heads * layer_parts)); }
  uint64_t query_columns() const { return heads * head_dim(); }
  uint64_t kv_columns() const { return kv_heads * head_dim(); }
  // kernels::AttentionShape::window: 0 where no sequence is longer.
  uint64_t attention_window() const { return window < context ? window : 0; }
  bool qkv_bias() const { return untrained.qkv_bias.value_or(output_bias() || traits().qkv_bias); }
  // Of what attention adds.
  bool output_bias() const { return attention_bias.value_or(traits().output_bias); }
  bool norms_heads() const { return traits().norms.heads; }
  bool norms_after() const { return traits().norms.after; }

  bool rotary() const { return !traits().learned_positions; }  // or relative, of T5
  double turned_share() const { return rotary_share.value_or(traits().rotary_share); }  // of a head
  uint64_t rotary_columns() const {  // of a head, rounded down as by transformers
    return static_cast<uint64_t>(static_cast<double>(head_dim()) * turned_share());
  }
  uint64_t position_rows() const { return positions.value_or(context); }
  // Of a learned table, the row of the first token, and all rows; 0: there is none.
  uint64_t first_position_row() const { return traits().first_position_row; }
  uint64_t position_table_rows() const {
    return rotary() ? 0 : first_position_row() + position_rows();
  }

  // Gains and shifts; else gains alone.
  bool layer_norms() const { return traits().norms.shift; }
  uint64_t norms_per_layer() const {
    return untrained.norms_per_layer.value_or(traits().norms.per_layer);
  }
  bool last_norm() const { return untrained.last_norm.value_or(true); }

  // Three matrices (SwiGLU); else two. Those of LayerNorm and two have biases as a rule.
  bool gated_mlp() const { return untrained.gated_mlp.value_or(!layer_norms()); }
  uint64_t mlp_inputs() const { return gated_mlp() ? 2 : 1; }  // matrices that read its input
  bool has_mlp_bias() const { return mlp_bias.value_or(layer_norms()); }
  Activation activation() const { return mlp_activation.value_or(usual_activation()); }
  Activation usual_activation() const { return traits().activation; }
  // Attention and MLP both read the input of their layer.
  bool parallel() const { return parallel_block.value_or(traits().parallel); }
  // Whether a router chooses among several MLPs; of a part of a model one may be left.
  bool routed() const { return experts > 1 || family == Family::kMixtral; }
  uint64_t mlps() const { return routed() ? experts : 1; }  // of each layer
  // Of these, how many a token is computed by.
  uint64_t mlps_per_token() const { return routed() ? experts_per_token : 1; }

  bool tied_output() const { return tied.value_or(traits().tied); }
  uint64_t table_columns() const {
    return untrained.embedding_width == 0 ? hidden : untrained.embedding_width;
  }
  Head head() const { return untrained.head.value_or(traits().head); }
  bool classifies() const {
    return head() == Head::kClassifier || head() == Head::kPooledClassifier;
  }
  // It foretells tokens that were masked, and not the next ones.
  bool masks() const { return head() == Head::kMaskedLanguage; }
  // Of a whole sequence of so many tokens, how many have a target.
  uint64_t targets_of(uint64_t tokens) const { return masks() ? MaskedTokens(tokens) : tokens; }
  uint64_t token_type_rows() const { return token_types.value_or(traits().token_types); }
  bool encodes() const { return traits().encoder; }  // all layers are an encoder
  uint64_t encoder_layers() const { return encodes() ? layers : untrained.encoder_layers; }
  bool is_encoder(uint64_t layer) const { return layer < encoder_layers(); }
  uint64_t decoder_layers() const { return layers - encoder_layers(); }
  // Encoder and decoder: each layer of the decoder has cross attention.
  bool has_both() const { return encoder_layers() > 0 && decoder_layers() > 0; }
};

enum class Operator : uint8_t {
  kEmbedding,
  kEncoderAttention,  // every token sees all of its sequence
  kAttention,         // causal: a token sees those before it
  kCrossAttention,    // every token of the decoder sees all of the encoder's
  kMlp,
  kOutput,
};
inline bool IsAttention(Operator op) {
  return op == Operator::kEncoderAttention || op == Operator::kAttention ||
         op == Operator::kCrossAttention;
}
// One of the parts that a layer consists of: attention, cross attention or MLP.
inline bool IsPartOfLayer(Operator op) { return IsAttention(op) || op == Operator::kMlp; }

// The parts of a layer in the order of the forward pass.
std::vector<Operator> PartsOfLayer(const ModelConfig& model, uint64_t layer);

// The usual MLP width: 4 hidden (GPT-2, OPT and GPT-NeoX); 8/3 hidden (LLaMA and the like) or 7/2
// hidden (Mixtral), rounded up to a multiple of 64.
uint64_t DefaultIntermediate(Family family, uint64_t hidden);

// Eight experts, two for each token, balanced as the checkpoints of Mixtral 8x7B say.
inline constexpr uint64_t kUsualExperts = 8;
inline constexpr uint64_t kUsualExpertsPerToken = 2;
inline constexpr double kUsualBalanceLoss = 0.02;

// Whether it can be trained. INVALID_ARGUMENT naming the value that is wrong and what would be
// right.
absl::Status Validate(const ModelConfig& config);

// Exact: the elements of all tensors (training/models/parameters.h).
uint64_t CountParameters(const ModelConfig& config);
// Without the experts that a token does not visit.
uint64_t CountActiveParameters(const ModelConfig& config);

// Of the matrices of one operator, with so many MLPs of a layer; the token table is looked up and
// not multiplied.
uint64_t MatrixElements(const ModelConfig& config, Operator op, uint64_t mlps);

// The floating-point operations that training on one token takes: 6 for each weight of a matrix
// product (2 forward, 4 backward), of the experts those that it visits, and 12 layers * heads *
// head_dim for each of the context's tokens that the attention may see. As is usual, what is
// computed a second time to save memory does not count (arXiv:2204.02311, appendix B).
double FlopsPerToken(const ModelConfig& config);
double LayerFlopsPerToken(const ModelConfig& config);   // of one layer
double OutputFlopsPerToken(const ModelConfig& config);  // of the output layer

// A shape with a name. Vocabulary and tokens are bytes whatever the original used, so a preset
// named after a published model has its shape but fewer parameters.
struct Preset {
  const char* name;
  ModelConfig config;
};
std::span<const Preset> Presets();

// NOT_FOUND listing the names.
absl::StatusOr<ModelConfig> FindPreset(const std::string& name);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_MODEL_CONFIG_H_
