// The shape of a decoder-only transformer, as far as memory and time depend on it: its tensors, and
// which operator uses each.
#ifndef GEMINID_TOOLS_FORECAST_MODEL_H_
#define GEMINID_TOOLS_FORECAST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace geminid::forecast {

// Element counts unless a name says otherwise. Plain values.
struct Model {
  std::string name;
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;      // fewer than heads: grouped queries; 1: multi-query
  std::uint64_t head_dim = 0;      // heads x head_dim need not be hidden
  std::uint64_t intermediate = 0;  // width of the MLP
  std::uint64_t vocabulary = 0;
  std::uint64_t position_rows = 0;  // of a learned table; 0: rotary or relative positions
  std::uint64_t context = 0;        // tokens per sequence it was made for

  bool gated_mlp = false;  // three matrices (SwiGLU) instead of two
  bool norm_shift = true;  // LayerNorm has a gain and a shift; RMSNorm a gain alone
  // 1: attention and MLP read the same norm (PaLM, Falcon); they are planned one after the other.
  std::uint64_t norms_per_layer = 2;
  bool final_norm = true;
  bool fused_qkv = true;  // one matrix for queries, keys and values
  bool qkv_bias = true;
  bool attention_output_bias = true;
  bool mlp_bias = true;
  bool tied_output = true;  // the token table is the output layer too
  // Width of the token table where it is not hidden; two matrices then lead in and out.
  std::uint64_t embedding_width = 0;

  std::uint64_t query_columns() const { return heads * head_dim; }
  std::uint64_t kv_columns() const { return kv_heads * head_dim; }
  std::uint64_t table_columns() const { return embedding_width == 0 ? hidden : embedding_width; }
};

// INVALID_ARGUMENT naming the number that is wrong and what would be right.
absl::Status Validate(const Model& model);

enum class Operator : std::uint8_t { kEmbedding, kAttention, kMlp, kOutput };

struct Tensor {
  std::uint64_t elements = 0;
  Operator used_by = Operator::kEmbedding;
  std::uint64_t layer = 0;   // of kAttention and kMlp
  bool also_output = false;  // a tied token table: used by kEmbedding and kOutput
};

// In order of first use in the forward pass. `model` is valid. Norms are with what follows them.
std::vector<Tensor> Tensors(const Model& model);

// Exact, by closed form: agrees with the sum over Tensors and with what its authors publish.
std::uint64_t CountParameters(const Model& model);

}  // namespace geminid::forecast

#endif  // GEMINID_TOOLS_FORECAST_MODEL_H_
