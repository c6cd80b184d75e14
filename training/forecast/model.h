// The shape of a transformer, as far as memory and time depend on it: its tensors, and which
// operator uses each.
#ifndef GEMINID_TRAINING_FORECAST_MODEL_H_
#define GEMINID_TRAINING_FORECAST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace geminid::forecast {

// What the last layer's output is turned into.
enum class Head : std::uint8_t {
  kLanguage,          // for each token a logit per row of the vocabulary
  kMaskedLanguage,    // the same after a dense layer and a norm, with a bias (BERT)
  kClassifier,        // for one token of each sequence a logit per class, with a bias
  kPooledClassifier,  // the same after a dense layer
};

// Element counts unless a name says otherwise. Plain values. The first `encoder_layers` layers are
// an encoder, whose tokens see each other; the others a decoder, whose tokens see what came before
// them, and which reads the encoder's output by cross attention if there is one.
struct Model {
  std::string name;
  std::uint64_t layers = 0;  // of encoder and decoder together
  std::uint64_t encoder_layers = 0;
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;        // fewer than heads: grouped queries; 1: multi-query
  std::uint64_t head_dim = 0;        // heads x head_dim need not be hidden
  std::uint64_t intermediate = 0;    // width of the MLP, of one expert if there are several
  std::uint64_t vocabulary = 0;      // rows of the token table; 0: what comes in is patches
  std::uint64_t patch_elements = 0;  // of an image, each with a projection to hidden
  std::uint64_t position_rows = 0;   // of a learned table; 0: rotary or relative positions
  // Of further learned tables as wide as hidden: types of token, or a token for the class.
  std::uint64_t other_rows = 0;
  std::uint64_t relative_buckets = 0;  // of distance, each with a bias per head, once a stack
  std::uint64_t context = 0;           // tokens per sequence: the most it was made for

  bool gated_mlp = false;  // three matrices (SwiGLU) instead of two
  // MLPs of which a router chooses experts_per_token for each token. 1: no router.
  std::uint64_t experts = 1;
  std::uint64_t experts_per_token = 1;
  bool norm_shift = true;  // LayerNorm has a gain and a shift; RMSNorm a gain alone
  // 1: attention and MLP read the same norm (PaLM, Falcon); they are planned one after the other.
  std::uint64_t norms_per_layer = 2;
  // Attention and MLP read the same input by norms of their own (GPT-NeoX); likewise.
  bool parallel_block = false;
  bool output_norms = false;  // what attention and MLP give is normed too (Gemma 2)
  bool qk_norm = false;       // the queries and keys of each head are normed (Qwen3)
  bool embedding_norm = false;
  bool final_norm = true;   // at the end of encoder and decoder each
  bool fused_qkv = true;    // one matrix for queries, keys and values
  bool fused_gate = false;  // one matrix for both inputs of a gated MLP
  bool qkv_bias = true;
  bool attention_output_bias = true;
  bool mlp_bias = true;
  Head head = Head::kLanguage;
  bool tied_output = true;    // the token table is the output layer too
  std::uint64_t classes = 0;  // of a classifier
  // Width of the token table where it is not hidden; two matrices then lead in and out.
  std::uint64_t embedding_width = 0;

  std::uint64_t decoder_layers() const { return layers - encoder_layers; }
  bool is_encoder(std::uint64_t layer) const { return layer < encoder_layers; }
  // Encoder and decoder: each layer of the decoder has cross attention.
  bool has_both() const { return encoder_layers > 0 && decoder_layers() > 0; }
  bool classifies() const { return head == Head::kClassifier || head == Head::kPooledClassifier; }
  std::uint64_t mlp_inputs() const { return gated_mlp ? 2 : 1; }  // matrices that read its input
  std::uint64_t query_columns() const { return heads * head_dim; }
  std::uint64_t kv_columns() const { return kv_heads * head_dim; }
  std::uint64_t table_columns() const { return embedding_width == 0 ? hidden : embedding_width; }
};

// INVALID_ARGUMENT naming the number that is wrong and what would be right.
absl::Status Validate(const Model& model);

enum class Operator : std::uint8_t {
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
std::vector<Operator> PartsOfLayer(const Model& model, std::uint64_t layer);

struct Tensor {
  // Of a matrix; vectors have one row.
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  Operator used_by = Operator::kEmbedding;
  std::uint64_t layer = 0;   // of a part of a layer
  bool also_output = false;  // a tied token table: used by kEmbedding and kOutput

  std::uint64_t elements() const { return rows * columns; }
};

// Which Muon makes orthogonal: not the tables, and not an output layer.
inline bool IsLayerMatrix(const Tensor& tensor) {
  return IsPartOfLayer(tensor.used_by) && tensor.rows > 1 && tensor.columns > 1;
}

// In order of first use in the forward pass. `model` is valid. Norms are with what follows them,
// but those of outputs and of an encoder's end with what they follow.
std::vector<Tensor> Tensors(const Model& model);

// Exact, by closed form: agrees with the sum over Tensors and with what its authors publish.
std::uint64_t CountParameters(const Model& model);
// Without the experts that a token does not visit.
std::uint64_t CountActiveParameters(const Model& model);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_MODEL_H_
