// The differences between families of models. A family is a row of properties, the names of its
// tensors, and code that reads and writes its config.json: gpt2.cc, llama.cc and so on.
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

// Sorted by name. All families can be forecast; FamilyTraits::trains says which the trainer trains.
// GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases, one table for input and
//   output. OPT (arXiv:2205.01068): the same with ReLU; no token uses the first two position rows.
// LLaMA (arXiv:2302.13971): rotary positions, RMSNorm, SwiGLU, no biases, usually two tables.
//   Like LLaMA are Mistral (arXiv:2310.06825) with a sliding window, Mixtral (arXiv:2401.04088)
//   with experts, Qwen2 (arXiv:2407.10671) with biases of queries, keys and values, Qwen3
//   (arXiv:2505.09388) with a norm of each head of queries and keys, Gemma and Phi-3.
// GPT-NeoX (arXiv:2204.06745; Pythia, arXiv:2304.01373): LayerNorm, GELU and biases as GPT-2, but
//   rotary positions of a part of each head, two tables, and as a rule a parallel block.
// BERT (arXiv:1810.04805): an encoder with learned positions and types of token, LayerNorm behind
//   each sublayer, exact GELU and biases, that foretells tokens that were masked.
// ViT (arXiv:2010.11929): an encoder of the patches of an image, with norms as GPT-2 and exact
//   GELU, that classifies it.
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

// The activation of an MLP without a gate. kGelu: the tanh form; kGeluErf: the exact form.
enum class Activation { kGelu, kRelu, kGeluErf };
const char* Name(Activation activation);

// The output of a model.
enum class Head : uint8_t {
  kLanguage,          // for each token a logit for each row of the vocabulary
  kMaskedLanguage,    // kLanguage after a dense layer and a norm, with a bias (BERT)
  kClassifier,        // for one token of each sequence a logit for each class, with a bias
  kPooledClassifier,  // kClassifier after a dense layer
};

// The memory layout of a linear layer's matrix: [out, in] (torch.nn.Linear) or [in, out] (the
// Conv1D of GPT-2).
enum class Layout { kOutIn, kInOut };

// The matrices of queries, keys and values of a layer. kApart: three matrices. kInBlocks: one
// matrix with three blocks of outputs (GPT-2). kByHead: one matrix with the outputs of each head
// together (GPT-NeoX).
enum class Projection : uint8_t { kApart, kInBlocks, kByHead };

// The defaults are the names of LLaMA, which most families use.
struct ParameterNames {
  const char* tokens = "model.embed_tokens.weight";
  const char* positions = "";
  const char* patches = "patches";    // of images
  const char* class_token = "class";  // likewise
  const char* token_types = "types";
  const char* layers = "model.layers.";
  const char* final_norm = "model.norm";
  const char* output = "lm_head";
  // For Head::kMaskedLanguage.
  const char* head_dense = "dense";
  const char* head_norm = "dense_norm";
  const char* output_bias = "output.bias";
  const char* embedding_norm = "";  // with Norms::after
  // Of a layer. With Norms::after, `attention_norm` ends the layer, and the next layer's attention
  // reads its output.
  const char* attention_norm = "input_layernorm";
  const char* query = "self_attn.q_proj";  // for three matrices
  const char* key = "self_attn.k_proj";
  const char* value = "self_attn.v_proj";
  const char* qkv = "self_attn.qkv_proj";  // for one matrix
  const char* attention_output = "self_attn.o_proj";
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_input = "mlp.gate_proj";
  const char* mlp_up = "mlp.up_proj";
  const char* mlp_output = "mlp.down_proj";
};

struct Norms {
  bool shift = false;      // LayerNorm; else RMSNorm
  bool heads = false;      // on the queries and keys of each head
  bool outputs = false;    // on the outputs of attention and MLP (Gemma 2)
  uint64_t per_layer = 2;  // 1: attention and MLP read the same norm (PaLM)
  // Norms follow the embedding and each sublayer (post-norm, BERT): norm(x + f(x)). The stream
  // between sublayers then holds the inputs of norms. Each sublayer begins with the norm of the
  // sublayer before: with n = norm(x) it computes n + f(n), in place of x + f(n). The last norm
  // ends the last layer.
  bool after = false;
};

// The properties of the family's models. ModelConfig can override some of them for one model.
struct FamilyTraits {
  const char* name = "";          // transformers' model_type
  const char* architecture = "";  // transformers' class
  Norms norms = {};
  bool learned_positions = false;
  uint64_t first_position_row = 0;  // the row of the first token in the position table
  double rotary_share = 1;
  Projection projection = Projection::kApart;
  bool qkv_bias = false;  // the output projection may lack a bias
  bool output_bias = false;
  bool fused_gate = false;  // one matrix for both inputs of a gated MLP
  bool parallel = false;
  bool tied = false;
  bool encoder = false;  // all layers form an encoder: each token attends to its whole sequence
  Head head = Head::kLanguage;
  uint64_t token_types = 0;  // rows of the token type table
  Activation activation = Activation::kGelu;
  Layout layout = Layout::kOutIn;  // of the layers' matrices
  ParameterNames names = {};
  // nullptr: no config.json describes this family.
  void (*read)(ConfigReader& from, ModelConfig* model) = nullptr;
  // Writes the keys that a checkpoint needs. nullptr: the trainer does not train this family.
  void (*write)(const ModelConfig& model, base::JsonWriter* json) = nullptr;

  bool trains() const { return write != nullptr; }
};
const FamilyTraits& TraitsOf(Family family);

// The family of transformers' model_type; unset: no family that config.json can describe.
std::optional<Family> FamilyOfType(const std::string& type);
// The model types that have readers, separated by commas. `trained`: only those that are trained.
std::string NamesOfTypes(bool trained);

extern const FamilyTraits kBertFamily, kFalconFamily, kGemmaFamily, kGemma2Family, kGemma3Family,
    kGpt2Family, kGptNeoxFamily, kLlamaFamily, kMistralFamily, kMixtralFamily, kOptFamily,
    kPalmFamily, kPhi3Family, kQwen2Family, kQwen3Family, kT5Family, kVitFamily;

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_FAMILY_H_
