#include "training/forecast/model.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::forecast {
namespace {

// Bounds that keep every product of sizes far from overflow; no published model comes near them.
constexpr std::uint64_t kLayersMax = 1 << 12;
constexpr std::uint64_t kWidthMax = 1 << 20;
constexpr std::uint64_t kExpertsMax = 1 << 12;
constexpr std::uint64_t kVocabularyMax = 1 << 24;

absl::Status CheckRange(const char* what, std::uint64_t value, std::uint64_t least,
                        std::uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, "; it must be from ", least, " to ", most));
}

std::uint64_t QkvColumns(const Model& m) { return m.query_columns() + 2 * m.kv_columns(); }
class TensorList {
 public:
  explicit TensorList(const Model& model) : m_(model) {}

  std::vector<Tensor> Make() {
    Embedding();
    for (layer_ = 0; layer_ < m_.layers; ++layer_) {
      for (const Operator op : PartsOfLayer(m_, layer_)) {
        op_ = op;
        if (op == Operator::kMlp) {
          Mlp();
        } else {
          Attention();
        }
      }
      // With what it follows: the decoder's layers all read its output.
      if (m_.has_both() && layer_ + 1 == m_.encoder_layers && m_.final_norm) AddNorm(m_.hidden);
    }
    layer_ = 0;
    Output();
    return std::move(tensors_);
  }

 private:
  void Add(std::uint64_t rows, std::uint64_t columns) {
    tensors_.push_back({.rows = rows, .columns = columns, .used_by = op_, .layer = layer_});
  }

  // A matrix, and its bias if there is one.
  void AddLinear(std::uint64_t in, std::uint64_t out, bool bias) {
    Add(out, in);
    if (bias) Add(1, out);
  }

  void AddNorm(std::uint64_t columns) {
    Add(1, columns);
    if (m_.norm_shift) Add(1, columns);
  }

  void Embedding() {
    op_ = Operator::kEmbedding;
    if (m_.vocabulary > 0) {
      Add(m_.vocabulary, m_.table_columns());
      tensors_.back().also_output = m_.tied_output && !m_.classifies();
    }
    if (m_.patch_elements > 0) AddLinear(m_.patch_elements, m_.hidden, true);
    if (m_.table_columns() != m_.hidden) Add(m_.hidden, m_.table_columns());
    if (m_.position_rows > 0) Add(m_.position_rows, m_.hidden);
    if (m_.other_rows > 0) Add(m_.other_rows, m_.hidden);
    if (m_.embedding_norm) AddNorm(m_.hidden);
  }

  void Attention() {
    AddNorm(m_.hidden);
    if (m_.fused_qkv) {
      AddLinear(m_.hidden, QkvColumns(m_), m_.qkv_bias);
    } else {
      AddLinear(m_.hidden, m_.query_columns(), m_.qkv_bias);
      AddLinear(m_.hidden, m_.kv_columns(), m_.qkv_bias);
      AddLinear(m_.hidden, m_.kv_columns(), m_.qkv_bias);
    }
    if (m_.qk_norm) {
      AddNorm(m_.head_dim);
      AddNorm(m_.head_dim);
    }
    AddLinear(m_.query_columns(), m_.hidden, m_.attention_output_bias);
    // The first layer of a stack has the biases by distance, and its others read what it made.
    const bool first = layer_ == 0 || layer_ == m_.encoder_layers;
    if (first && m_.relative_buckets > 0 && op_ != Operator::kCrossAttention) {
      Add(m_.relative_buckets, m_.heads);
    }
    if (m_.output_norms) AddNorm(m_.hidden);
  }

  void Mlp() {
    for (std::uint64_t norm = 1; norm < m_.norms_per_layer; ++norm) AddNorm(m_.hidden);
    if (m_.experts > 1) Add(m_.experts, m_.hidden);  // the router
    for (std::uint64_t expert = 0; expert < m_.experts; ++expert) {
      if (m_.fused_gate) {
        AddLinear(m_.hidden, m_.mlp_inputs() * m_.intermediate, m_.mlp_bias);
      } else {
        AddLinear(m_.hidden, m_.intermediate, m_.mlp_bias);
        if (m_.gated_mlp) AddLinear(m_.hidden, m_.intermediate, m_.mlp_bias);
      }
      AddLinear(m_.intermediate, m_.hidden, m_.mlp_bias);
    }
    if (m_.output_norms) AddNorm(m_.hidden);
  }

  void Output() {
    op_ = Operator::kOutput;
    if (m_.final_norm) AddNorm(m_.hidden);
    if (m_.head == Head::kMaskedLanguage || m_.head == Head::kPooledClassifier) {
      AddLinear(m_.hidden, m_.hidden, true);
    }
    if (m_.head == Head::kMaskedLanguage) AddNorm(m_.hidden);
    if (m_.classifies()) {
      AddLinear(m_.hidden, m_.classes, true);
      return;
    }
    if (m_.table_columns() != m_.hidden) Add(m_.table_columns(), m_.hidden);
    if (!m_.tied_output) Add(m_.vocabulary, m_.table_columns());
    if (m_.head == Head::kMaskedLanguage) Add(1, m_.vocabulary);
  }

  const Model& m_;
  Operator op_ = Operator::kEmbedding;
  std::uint64_t layer_ = 0;
  std::vector<Tensor> tensors_;
};

std::uint64_t NormElements(const Model& m, std::uint64_t columns) {
  return m.norm_shift ? 2 * columns : columns;
}

std::uint64_t LinearElements(std::uint64_t in, std::uint64_t out, bool bias) {
  return in * out + (bias ? out : 0);
}

std::uint64_t ExpertElements(const Model& m) {
  return LinearElements(m.hidden, m.mlp_inputs() * m.intermediate, m.mlp_bias) +
         LinearElements(m.intermediate, m.hidden, m.mlp_bias);
}

// Attention with the one norm that it always has.
std::uint64_t AttentionElements(const Model& m) {
  return LinearElements(m.hidden, QkvColumns(m), m.qkv_bias) +
         LinearElements(m.query_columns(), m.hidden, m.attention_output_bias) +
         NormElements(m, m.hidden) + (m.qk_norm ? 2 * NormElements(m, m.head_dim) : 0) +
         (m.output_norms ? NormElements(m, m.hidden) : 0);
}

std::uint64_t MlpElements(const Model& m) {
  return (m.norms_per_layer - 1) * NormElements(m, m.hidden) +
         (m.output_norms ? NormElements(m, m.hidden) : 0) +
         (m.experts > 1 ? m.experts * m.hidden : 0) + m.experts * ExpertElements(m);
}

std::uint64_t EmbeddingElements(const Model& m) {
  const std::uint64_t width = m.table_columns();
  return m.vocabulary * width + (width == m.hidden ? 0 : width * m.hidden) +
         (m.patch_elements > 0 ? LinearElements(m.patch_elements, m.hidden, true) : 0) +
         (m.position_rows + m.other_rows) * m.hidden +
         (m.embedding_norm ? NormElements(m, m.hidden) : 0);
}

std::uint64_t HeadElements(const Model& m) {
  const std::uint64_t width = m.table_columns();
  const std::uint64_t dense = LinearElements(m.hidden, m.hidden, true);
  const std::uint64_t table =
      (m.tied_output ? 0 : m.vocabulary * width) + (width == m.hidden ? 0 : width * m.hidden);
  switch (m.head) {
    case Head::kLanguage:
      return table;
    case Head::kMaskedLanguage:
      return table + dense + NormElements(m, m.hidden) + m.vocabulary;
    case Head::kClassifier:
      return LinearElements(m.hidden, m.classes, true);
    case Head::kPooledClassifier:
      return dense + LinearElements(m.hidden, m.classes, true);
  }
  return 0;
}

absl::Status CheckRanges(const Model& model) {
  struct Range {
    const char* what;
    std::uint64_t value, least, most;
  };
  const bool patches = model.patch_elements > 0;
  for (const Range& range : {
           Range{"the number of layers", model.layers, 1, kLayersMax},
           Range{"the number of the encoder's layers", model.encoder_layers, 0, model.layers},
           Range{"the hidden size", model.hidden, 1, kWidthMax},
           Range{"the number of heads", model.heads, 1, kWidthMax},
           Range{"the number of key/value heads", model.kv_heads, 1, model.heads},
           Range{"the width of a head", model.head_dim, 1, kWidthMax},
           Range{"the width of all heads", model.query_columns(), 1, kWidthMax},
           Range{"the width of the MLP", model.intermediate, 1, kWidthMax},
           Range{"the number of experts", model.experts, 1, kExpertsMax},
           Range{"the number of experts per token", model.experts_per_token, 1, model.experts},
           Range{"the vocabulary", model.vocabulary, patches ? 0u : 1u,
                 patches ? 0 : kVocabularyMax},
           Range{"the number of elements of a patch", model.patch_elements, 0, kWidthMax},
           Range{"the number of positions", model.position_rows, 0, kVocabularyMax},
           Range{"the number of other rows", model.other_rows, 0, kVocabularyMax},
           Range{"the number of relative positions", model.relative_buckets, 0, kVocabularyMax},
           Range{"the number of classes", model.classes, model.classifies() ? 1u : 0u,
                 kVocabularyMax},
           Range{"the context", model.context, 1, kVocabularyMax},
           Range{"the number of norms per layer", model.norms_per_layer, 1, 2},
           Range{"the width of the token table", model.embedding_width, 0, kWidthMax},
       }) {
    GEMINID_RETURN_IF_ERROR(CheckRange(range.what, range.value, range.least, range.most));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Model& model) {
  GEMINID_RETURN_IF_ERROR(CheckRanges(model));
  if (model.heads % model.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the number of key/value heads (",
                                                   model.kv_heads, ") must divide that of heads (",
                                                   model.heads, ")"));
  }
  if (model.patch_elements > 0 && !model.classifies()) {
    return absl::InvalidArgumentError("patches have no vocabulary; the model must classify");
  }
  return absl::OkStatus();
}

std::vector<Operator> PartsOfLayer(const Model& model, std::uint64_t layer) {
  if (model.is_encoder(layer)) return {Operator::kEncoderAttention, Operator::kMlp};
  if (!model.has_both()) return {Operator::kAttention, Operator::kMlp};
  return {Operator::kAttention, Operator::kCrossAttention, Operator::kMlp};
}

std::vector<Tensor> Tensors(const Model& model) { return TensorList(model).Make(); }

std::uint64_t CountParameters(const Model& m) {
  const std::uint64_t crossing = m.has_both() ? m.decoder_layers() : 0;
  const std::uint64_t stacks = m.has_both() ? 2 : 1;
  return EmbeddingElements(m) + m.layers * (AttentionElements(m) + MlpElements(m)) +
         crossing * AttentionElements(m) + stacks * m.relative_buckets * m.heads +
         (m.final_norm ? stacks * NormElements(m, m.hidden) : 0) + HeadElements(m);
}

std::uint64_t CountActiveParameters(const Model& m) {
  return CountParameters(m) - m.layers * (m.experts - m.experts_per_token) * ExpertElements(m);
}

}  // namespace geminid::forecast
