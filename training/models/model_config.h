// The shape of a decoder-only transformer, and presets: shapes with a name.
#ifndef GEMINID_TRAINING_MODELS_MODEL_CONFIG_H_
#define GEMINID_TRAINING_MODELS_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/models/rotary_scaling.h"

namespace geminid::trainer {

// kGpt2: learned positions, LayerNorm, GELU, biases, one table for input and output (Radford et al.
// 2019). kLlama: rotary positions, RMSNorm, SwiGLU, no biases, as a rule two tables
// (arXiv:2302.13971). kMixtral: as kLlama, but each layer has several MLPs, experts, of which a
// router chooses some for each token (arXiv:2401.04088). kMistral: as kLlama, as a rule with a
// sliding window (arXiv:2310.06825). kQwen2: as kLlama, with biases of queries, keys and values
// (arXiv:2407.10671). kQwen3: as kLlama, with a norm of each head of queries and keys
// (arXiv:2505.09388). kOpt: as kGpt2, with ReLU, and a table of positions whose first two rows no
// token has (arXiv:2205.01068). kGptNeox: LayerNorm, GELU and biases as kGpt2, but rotary positions
// of a part of each head, two tables, and as a rule attention and MLP beside each other
// (arXiv:2204.06745; Pythia, arXiv:2304.01373).
enum class Family { kGpt2, kLlama, kMixtral, kMistral, kQwen2, kQwen3, kOpt, kGptNeox };
const char* Name(Family family);
absl::StatusOr<Family> ParseFamily(const std::string& name);

// Of an MLP without a gate. kGelu: the tanh form; kGeluErf: the exact one.
enum class Activation { kGelu, kRelu, kGeluErf };
const char* Name(Activation activation);

// Text is bytes.
inline constexpr uint64_t kByteVocabulary = 256;

struct ModelConfig {
  Family family = Family::kGpt2;
  uint64_t layers = 0;
  uint64_t hidden = 0;
  uint64_t heads = 0;
  // Divides heads; below it: grouped queries (not GPT-2, OPT and GPT-NeoX).
  uint64_t kv_heads = 0;
  // Of one head; unset: hidden / heads. Not GPT-2, OPT and GPT-NeoX.
  std::optional<uint64_t> head_width = std::nullopt;
  uint64_t intermediate = 0;  // width of the MLP, of each expert if there are several
  uint64_t context = 0;       // tokens per sequence
  uint64_t vocabulary = kByteVocabulary;
  // How many positions the model knows, at least `context`; unset: as many.
  std::optional<uint64_t> positions = std::nullopt;
  double norm_epsilon = 1e-5;
  // Gains and shifts of the norms are fp32 beside weights of another type.
  bool fp32_norms = false;
  double rotary_theta = 10000;  // not GPT-2 and OPT; that of LLaMA 2
  RotaryScaling rotary_scaling = {};
  // The share of a head's elements that is turned, the first ones; unset: as is usual in the
  // family.
  std::optional<double> rotary_share = std::nullopt;
  // A token sees so many at most, itself the last of them; 0: all before it. Not GPT-2, OPT and
  // GPT-NeoX.
  uint64_t window = 0;
  // Whether queries, keys, values and what attention adds have biases; unset: as is usual in the
  // family. GPT-2 and OPT have them always.
  std::optional<bool> attention_bias = std::nullopt;
  // Whether the MLP reads the input of its layer, as attention does, and not what attention adds to
  // it; unset: as is usual in the family. GPT-NeoX alone.
  std::optional<bool> parallel_block = std::nullopt;
  // Of an MLP without a gate; unset: as is usual in the family.
  std::optional<Activation> mlp_activation = std::nullopt;
  // Whether the output layer is the token table; unset: as is usual in the family.
  std::optional<bool> tied = std::nullopt;

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

  uint64_t head_dim() const { return head_width.value_or(hidden / (heads * layer_parts)); }
  uint64_t query_columns() const { return heads * head_dim(); }
  uint64_t kv_columns() const { return kv_heads * head_dim(); }
  // kernels::AttentionShape::window: 0 where no sequence is longer.
  uint64_t attention_window() const { return window < context ? window : 0; }
  // Learned positions, LayerNorm, biases everywhere, no gate, and as a rule one table.
  bool like_gpt2() const { return family == Family::kGpt2 || family == Family::kOpt; }
  bool like_gpt_neox() const { return family == Family::kGptNeox; }
  // LayerNorm, and an MLP of two matrices with biases; else RMSNorm, and three without.
  bool layer_norms() const { return like_gpt2() || like_gpt_neox(); }
  bool gated_mlp() const { return !layer_norms(); }
  bool rotary() const { return !like_gpt2(); }
  double turned_share() const {  // of a head
    constexpr double kOfGptNeox = 0.25;
    return rotary_share.value_or(like_gpt_neox() ? kOfGptNeox : 1);
  }
  uint64_t rotary_columns() const {  // of a head, rounded down as by transformers
    return static_cast<uint64_t>(static_cast<double>(head_dim()) * turned_share());
  }
  Activation activation() const { return mlp_activation.value_or(usual_activation()); }
  Activation usual_activation() const {
    if (like_gpt_neox()) return Activation::kGeluErf;
    return family == Family::kOpt ? Activation::kRelu : Activation::kGelu;
  }
  // Attention and MLP both read the input of their layer.
  bool parallel() const { return parallel_block.value_or(like_gpt_neox()); }
  bool routed() const { return family == Family::kMixtral; }
  bool qkv_bias() const { return output_bias() || family == Family::kQwen2; }
  bool output_bias() const {  // of attention
    return like_gpt2() || attention_bias.value_or(like_gpt_neox());
  }
  bool norms_heads() const { return family == Family::kQwen3; }
  // Of each layer, how many MLPs a token is computed by.
  uint64_t mlps_per_token() const { return routed() ? experts_per_token : 1; }
  // Beside each matrix of a layer two thin ones, of which only these are trained (LoRA, Hu et al.
  // 2021, arXiv:2106.09685): y = x W + alpha / rank (x A) B. 0: none.
  uint64_t lora_rank = 0;
  double lora_alpha = 0;

  uint64_t position_rows() const { return positions.value_or(context); }
  // Of a learned table, the row of the first token.
  uint64_t first_position_row() const { return family == Family::kOpt ? 2 : 0; }
  bool tied_output() const { return tied.value_or(like_gpt2()); }
};

// The usual MLP width: 4 hidden (GPT-2, OPT and GPT-NeoX); 8/3 hidden (LLaMA and the like) or 7/2
// hidden (Mixtral), rounded up to a multiple of 64.
uint64_t DefaultIntermediate(Family family, uint64_t hidden);

// Eight experts, two for each token, balanced as the checkpoints of Mixtral 8x7B say.
inline constexpr uint64_t kUsualExperts = 8;
inline constexpr uint64_t kUsualExpertsPerToken = 2;
inline constexpr double kUsualBalanceLoss = 0.02;

// INVALID_ARGUMENT naming the value that is wrong and what would be right.
absl::Status Validate(const ModelConfig& config);

uint64_t CountParameters(const ModelConfig& config);

// The floating-point operations that training on one token takes: 6 for each weight of a matrix
// product (2 forward, 4 backward), of the experts those that it visits, and 12 layers * heads *
// head_dim for each of the context's tokens that the attention may see. As is usual, what is
// computed a second time to save memory does not count (arXiv:2204.02311, appendix B).
double FlopsPerToken(const ModelConfig& config);

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
