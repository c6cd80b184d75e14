// What families of models differ in. A family is a row of properties with the names of its tensors
// and the code that reads and writes its config.json: gpt2.cc, llama.cc and so on.
#ifndef GEMINID_TRAINING_MODELS_FAMILY_H_
#define GEMINID_TRAINING_MODELS_FAMILY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/json_writer.h"

namespace geminid::trainer {

struct ConfigReader;
struct ModelConfig;

// By name. The trainer trains some of them (FamilyTraits::trains); all can be forecast.
// GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases, one table for input and
//   output. OPT (arXiv:2205.01068): the same with ReLU, and two rows of positions without a token.
// LLaMA (arXiv:2302.13971): rotary positions, RMSNorm, SwiGLU, no biases, as a rule two tables.
//   As LLaMA are Mistral (arXiv:2310.06825) with a sliding window, Mixtral (arXiv:2401.04088) with
//   experts, Qwen2 (arXiv:2407.10671) with biases of queries, keys and values, Qwen3
//   (arXiv:2505.09388) with a norm of each head of queries and keys, Gemma and Phi-3.
// GPT-NeoX (arXiv:2204.06745; Pythia, arXiv:2304.01373): LayerNorm, GELU and biases as GPT-2, but
//   rotary positions of a part of each head, two tables, and as a rule a parallel block.
// BERT (arXiv:1810.04805): an encoder with learned positions and types of token, LayerNorm behind
//   each sublayer, exact GELU and biases, that foretells tokens that were masked.
enum class Family : uint8_t {
  kBert,
  kFalcon,
  kGemma,
  kGemma2,
  kGemma3,
  kGpt2,
  kGptNeox,
  kLlama,
  kMistral,
  kMixtral,
  kOpt,
  kPalm,
  kPhi3,
  kQwen2,
  kQwen3,
  kT5,
  kVit,
};
const char* Name(Family family);
// INVALID_ARGUMENT for families that the trainer does not train.
absl::StatusOr<Family> ParseFamily(const std::string& name);

// Of an MLP without a gate. kGelu: the tanh form; kGeluErf: the exact one.
enum class Activation { kGelu, kRelu, kGeluErf };
const char* Name(Activation activation);

// What the last layer's output is turned into.
enum class Head : uint8_t {
  kLanguage,          // for each token a logit per row of the vocabulary
  kMaskedLanguage,    // the same after a dense layer and a norm, with a bias (BERT)
  kClassifier,        // for one token of each sequence a logit per class, with a bias
  kPooledClassifier,  // the same after a dense layer
};

// How the matrix of a linear layer lies in memory: [out, in] (torch.nn.Linear) or [in, out] (the
// Conv1D of GPT-2).
enum class Layout { kOutIn, kInOut };

// Queries, keys and values of a layer: three matrices, one with three blocks of outputs (GPT-2), or
// one with the outputs of each head together (GPT-NeoX).
enum class Projection : uint8_t { kApart, kInBlocks, kByHead };

// Those of LLaMA, which most families have.
struct ParameterNames {
  const char* tokens = "model.embed_tokens.weight";
  const char* positions = "";
  const char* token_types = "types";
  const char* layers = "model.layers.";
  const char* final_norm = "model.norm";
  const char* output = "lm_head";
  // Of Head::kMaskedLanguage.
  const char* head_dense = "dense";
  const char* head_norm = "dense_norm";
  const char* output_bias = "output.bias";
  const char* embedding_norm = "";  // with Norms::after
  // Of a layer. With Norms::after `attention_norm` is what ends it, and the next attention reads.
  const char* attention_norm = "input_layernorm";
  const char* query = "self_attn.q_proj";  // of three matrices
  const char* key = "self_attn.k_proj";
  const char* value = "self_attn.v_proj";
  const char* qkv = "self_attn.qkv_proj";  // of one matrix
  const char* attention_output = "self_attn.o_proj";
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_input = "mlp.gate_proj";
  const char* mlp_up = "mlp.up_proj";
  const char* mlp_output = "mlp.down_proj";
};

struct Norms {
  bool shift = false;      // LayerNorm; else RMSNorm
  bool heads = false;      // of the queries and keys of each head
  bool outputs = false;    // of what attention and MLP give (Gemma 2)
  uint64_t per_layer = 2;  // 1: attention and MLP read the same norm (PaLM)
  // Norms stand behind the embedding and each sublayer (post-norm, BERT): norm(x + f(x)). The
  // stream between sublayers is then what a norm reads, and the sublayer after it begins with that
  // norm: with n = norm(x) it gives n + f(n), in place of x + f(n). The last norm ends the last
  // layer.
  bool after = false;
};

// The properties of the family's models, of which a model may have others (ModelConfig).
struct FamilyTraits {
  const char* name = "";          // transformers' model_type
  const char* architecture = "";  // transformers' class
  Norms norms = {};
  bool learned_positions = false;
  uint64_t first_position_row = 0;  // of the table of positions, the row of the first token
  double rotary_share = 1;
  Projection projection = Projection::kApart;
  bool qkv_bias = false;  // without one of what attention adds
  bool output_bias = false;
  bool fused_gate = false;  // one matrix for both inputs of a gated MLP
  bool parallel = false;
  bool tied = false;
  bool encoder = false;  // all layers are: each token sees its whole sequence
  Head head = Head::kLanguage;
  uint64_t token_types = 0;  // rows of their table
  Activation activation = Activation::kGelu;
  Layout layout = Layout::kOutIn;  // of the matrices of layers
  ParameterNames names = {};
  // nullptr: no config.json describes it.
  void (*read)(ConfigReader& from, ModelConfig* model) = nullptr;
  // Writes the keys that a checkpoint needs. nullptr: the trainer does not train the family.
  void (*write)(const ModelConfig& model, base::JsonWriter* json) = nullptr;

  bool trains() const { return write != nullptr; }
};
const FamilyTraits& TraitsOf(Family family);

// Of transformers' model_type; unset: none that a config.json describes.
std::optional<Family> FamilyOfType(const std::string& type);
// The model types that have readers, with commas; those that are trained alone.
std::string NamesOfTypes(bool trained);

extern const FamilyTraits kBertFamily, kFalconFamily, kGemmaFamily, kGemma2Family, kGemma3Family,
    kGpt2Family, kGptNeoxFamily, kLlamaFamily, kMistralFamily, kMixtralFamily, kOptFamily,
    kPalmFamily, kPhi3Family, kQwen2Family, kQwen3Family, kT5Family, kVitFamily;

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_FAMILY_H_
