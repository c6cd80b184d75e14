#include "tools/forecast/model.h"

#include "absl/strings/str_cat.h"

namespace geminid::forecast {
namespace {

// Bounds that keep every product of sizes far from overflow; no published model comes near them.
constexpr std::uint64_t kLayersMax = 1 << 12;
constexpr std::uint64_t kWidthMax = 1 << 20;
constexpr std::uint64_t kVocabularyMax = 1 << 24;

absl::Status CheckRange(const char* what, std::uint64_t value, std::uint64_t least,
                        std::uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, "; it must be from ", least, " to ", most));
}

std::uint64_t NormElements(const Model& m) { return m.norm_shift ? 2 * m.hidden : m.hidden; }

std::uint64_t QkvColumns(const Model& m) { return m.query_columns() + 2 * m.kv_columns(); }

class TensorList {
 public:
  explicit TensorList(const Model& model) : m_(model) {}

  std::vector<Tensor> Make() {
    Ends();
    for (layer_ = 0; layer_ < m_.layers; ++layer_) {
      Attention();
      Mlp();
    }
    layer_ = 0;
    Output();
    return std::move(tensors_);
  }

 private:
  void Add(Operator op, std::uint64_t elements) {
    tensors_.push_back({.elements = elements, .used_by = op, .layer = layer_});
  }

  // A matrix, and its bias if there is one.
  void AddLinear(Operator op, std::uint64_t in, std::uint64_t out, bool bias) {
    Add(op, in * out);
    if (bias) Add(op, out);
  }

  void AddNorm(Operator op) {
    Add(op, m_.hidden);
    if (m_.norm_shift) Add(op, m_.hidden);
  }

  void Ends() {
    Add(Operator::kEmbedding, m_.vocabulary * m_.table_columns());
    tensors_.back().also_output = m_.tied_output;
    if (m_.table_columns() != m_.hidden) {
      Add(Operator::kEmbedding, m_.table_columns() * m_.hidden);
    }
    if (m_.position_rows > 0) Add(Operator::kEmbedding, m_.position_rows * m_.hidden);
  }

  void Attention() {
    AddNorm(Operator::kAttention);
    if (m_.fused_qkv) {
      AddLinear(Operator::kAttention, m_.hidden, QkvColumns(m_), m_.qkv_bias);
    } else {
      AddLinear(Operator::kAttention, m_.hidden, m_.query_columns(), m_.qkv_bias);
      AddLinear(Operator::kAttention, m_.hidden, m_.kv_columns(), m_.qkv_bias);
      AddLinear(Operator::kAttention, m_.hidden, m_.kv_columns(), m_.qkv_bias);
    }
    AddLinear(Operator::kAttention, m_.query_columns(), m_.hidden, m_.attention_output_bias);
  }

  void Mlp() {
    for (std::uint64_t norm = 1; norm < m_.norms_per_layer; ++norm) AddNorm(Operator::kMlp);
    AddLinear(Operator::kMlp, m_.hidden, m_.intermediate, m_.mlp_bias);
    if (m_.gated_mlp) AddLinear(Operator::kMlp, m_.hidden, m_.intermediate, m_.mlp_bias);
    AddLinear(Operator::kMlp, m_.intermediate, m_.hidden, m_.mlp_bias);
  }

  void Output() {
    if (m_.final_norm) AddNorm(Operator::kOutput);
    if (m_.table_columns() != m_.hidden) Add(Operator::kOutput, m_.hidden * m_.table_columns());
    if (!m_.tied_output) Add(Operator::kOutput, m_.vocabulary * m_.table_columns());
  }

  const Model& m_;
  std::uint64_t layer_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace

absl::Status Validate(const Model& model) {
  struct Range {
    const char* what;
    std::uint64_t value, least, most;
  };
  for (const Range& range : {
           Range{"the number of layers", model.layers, 1, kLayersMax},
           Range{"the hidden size", model.hidden, 1, kWidthMax},
           Range{"the number of heads", model.heads, 1, kWidthMax},
           Range{"the number of key/value heads", model.kv_heads, 1, model.heads},
           Range{"the width of a head", model.head_dim, 1, kWidthMax},
           Range{"the width of all heads", model.query_columns(), 1, kWidthMax},
           Range{"the width of the MLP", model.intermediate, 1, kWidthMax},
           Range{"the vocabulary", model.vocabulary, 1, kVocabularyMax},
           Range{"the number of positions", model.position_rows, 0, kVocabularyMax},
           Range{"the context", model.context, 1, kVocabularyMax},
           Range{"the number of norms per layer", model.norms_per_layer, 1, 2},
           Range{"the width of the token table", model.embedding_width, 0, kWidthMax},
       }) {
    absl::Status status = CheckRange(range.what, range.value, range.least, range.most);
    if (!status.ok()) return status;
  }
  if (model.heads % model.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the number of key/value heads (",
                                                   model.kv_heads, ") must divide that of heads (",
                                                   model.heads, ")"));
  }
  return absl::OkStatus();
}

std::vector<Tensor> Tensors(const Model& model) { return TensorList(model).Make(); }

std::uint64_t CountParameters(const Model& m) {
  const std::uint64_t h = m.hidden;
  const std::uint64_t q = m.query_columns();
  const std::uint64_t width = m.table_columns();
  const std::uint64_t table = m.vocabulary * width * (m.tied_output ? 1 : 2);
  const std::uint64_t projections = width == h ? 0 : 2 * width * h;
  const std::uint64_t attention = h * QkvColumns(m) + q * h + (m.qkv_bias ? QkvColumns(m) : 0) +
                                  (m.attention_output_bias ? h : 0);
  const std::uint64_t inputs = m.gated_mlp ? 2 : 1;
  const std::uint64_t mlp =
      (inputs + 1) * h * m.intermediate + (m.mlp_bias ? inputs * m.intermediate + h : 0);
  return table + projections + m.position_rows * h +
         m.layers * (m.norms_per_layer * NormElements(m) + attention + mlp) +
         (m.final_norm ? NormElements(m) : 0);
}

}  // namespace geminid::forecast
