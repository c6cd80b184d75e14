// The operations, their order and the types between them are those of cuDNN's own frontend (1.32)
// for its deterministic attention. The library accepts only graphs of this form.
#include "kernels/model/attention/attention_graph_cuda.h"

namespace geminid::kernels {
namespace {

using gpu::DnnData;
using gpu::DnnPointwise;
using gpu::DnnReduce;
using Tensor = DnnGraph::Tensor;
using Dims = DnnGraph::Dims;

class Graph {
 public:
  Graph(const gpu::CudnnApi& api, const AttentionHeads& h)
      : h_(h),
        graph_(std::make_unique<DnnGraph>(api)),
        rows_{h.batch, h.heads, h.sequence, 1},
        scores_{h.batch, h.heads, h.sequence, h.sequence} {}

  std::unique_ptr<DnnGraph> Forward() {
    const Tensor scores = MaskedScores(Scores(), /*lse=*/nullptr);
    const Tensor most = graph_->Between(rows_);
    graph_->Reduce(DnnReduce::kMax, scores, most);
    const Tensor powers = Of(DnnPointwise::kExp, Of(DnnPointwise::kSub, scores, most, scores_));
    const Tensor sums = graph_->Between(rows_);
    graph_->Reduce(DnnReduce::kAdd, powers, sums);
    graph_->Apply(DnnPointwise::kAdd, most, Pointer(Of(DnnPointwise::kLog, sums)),
                  InRows(kAttentionLse));
    const Tensor chances = graph_->Between(scores_, DnnData::kBf16);
    graph_->Apply(DnnPointwise::kDiv, powers, &sums, chances);
    graph_->Multiply(chances, Keys(kAttentionV), Queries(kAttentionOut));
    return std::move(graph_);
  }

  std::unique_ptr<DnnGraph> Backward() {
    const Tensor q = Queries(kAttentionQ);
    const Tensor k_across = Across(kAttentionK);
    const Tensor dout = Queries(kAttentionDout);
    const Tensor row_sums = RowSums(dout);
    const Tensor lse = InRows(kAttentionLse);
    const Tensor powers = Of(DnnPointwise::kExp, MaskedScores(ScaledProduct(q, k_across), &lse));
    GradientOfKeys(powers, dout, kAttentionDv);
    const Tensor dchances = graph_->Between(scores_);
    graph_->Multiply(dout, Across(kAttentionV), dchances);
    const Tensor centred = Of(DnnPointwise::kSub, dchances, row_sums, scores_);
    const Tensor dscores =
        Of(DnnPointwise::kMul, Of(DnnPointwise::kMul, centred, powers, scores_), scale_, scores_);
    GradientOfKeys(dscores, q, kAttentionDk);
    const Tensor k = graph_->Between(KeyDims(h_.kv_heads), KeyStrides(), DnnData::kBf16);
    graph_->Reshape(k_across, k);
    graph_->Multiply(dscores, k, Queries(kAttentionDq));
    return std::move(graph_);
  }

 private:
  static const Tensor* Pointer(const Tensor& tensor) { return &tensor; }

  Dims KeyDims(int64_t heads) const { return {h_.batch, heads, h_.sequence, h_.head_dim}; }
  Dims KeyStrides() const { return {h_.sequence * h_.kv_stride, h_.head_dim, h_.kv_stride, 1}; }
  Tensor Queries(int64_t id) {
    return graph_->InMemory(id, DnnData::kBf16, KeyDims(h_.heads),
                            {h_.sequence * h_.query_stride, h_.head_dim, h_.query_stride, 1});
  }
  Tensor Keys(int64_t id) {
    return graph_->InMemory(id, DnnData::kBf16, KeyDims(h_.kv_heads), KeyStrides());
  }
  // Keys or values as [element, token].
  Tensor Across(int64_t id) {
    return graph_->InMemory(id, DnnData::kBf16, {h_.batch, h_.kv_heads, h_.head_dim, h_.sequence},
                            {h_.sequence * h_.kv_stride, h_.head_dim, 1, h_.kv_stride});
  }
  // One fp32 value for each query.
  Tensor InRows(int64_t id) {
    return graph_->InMemory(id, DnnData::kFp32, rows_, {h_.heads * h_.sequence, h_.sequence, 1, 1});
  }

  Tensor Of(DnnPointwise mode, const Tensor& x) {
    const Tensor y = graph_->Between(x.dims);
    graph_->Apply(mode, x, nullptr, y);
    return y;
  }
  Tensor Of(DnnPointwise mode, const Tensor& x, const Tensor& b, const Dims& dims) {
    const Tensor y = graph_->Between(dims);
    graph_->Apply(mode, x, &b, y);
    return y;
  }

  Tensor ScaledProduct(const Tensor& q, const Tensor& k_across) {
    const Tensor product = graph_->Between(scores_);
    graph_->Multiply(q, k_across, product);
    scale_ = graph_->ByValue(kAttentionScale);
    return Of(DnnPointwise::kMul, product, scale_, scores_);
  }
  Tensor Scores() { return ScaledProduct(Queries(kAttentionQ), Across(kAttentionK)); }

  // The scores, minus `lse` if it is set; minus infinity for keys after the query.
  Tensor MaskedScores(Tensor scores, const Tensor* lse) {
    if (lse != nullptr) scores = Of(DnnPointwise::kSub, scores, *lse, scores_);
    const Tensor query = graph_->Between(scores_, DnnData::kInt32);
    const Tensor key = graph_->Between(scores_, DnnData::kInt32);
    graph_->Index(scores, 2, query);
    graph_->Index(scores, 3, key);
    const Tensor seen = graph_->Between(scores_, DnnData::kBoolean);
    graph_->Apply(DnnPointwise::kGreaterOrEqual, query, &key, seen, DnnData::kBoolean);
    const Tensor masked = graph_->Between(scores_);
    graph_->Apply(DnnPointwise::kSelect, scores, Pointer(graph_->ByValue(kAttentionMasked)), masked,
                  DnnData::kFp32, &seen);
    return masked;
  }

  // rowsum(dO * O), written to memory.
  Tensor RowSums(const Tensor& dout) {
    const Tensor product = Of(DnnPointwise::kMul, dout, Queries(kAttentionOut), KeyDims(h_.heads));
    const Tensor sums = graph_->Between(rows_);
    graph_->Reduce(DnnReduce::kAdd, product, sums);
    const Tensor in_memory = InRows(kAttentionRowSums);
    graph_->Apply(DnnPointwise::kMul, sums, Pointer(graph_->ByValue(kAttentionOne)), in_memory);
    return in_memory;
  }

  // scores^T right, summed over the query heads that read the same keys.
  void GradientOfKeys(const Tensor& scores, const Tensor& right, int64_t id) {
    const Tensor across = graph_->Between(
        scores_, {h_.heads * h_.sequence * h_.sequence, h_.sequence * h_.sequence, 1, h_.sequence},
        DnnData::kBf16);
    graph_->Reshape(scores, across);
    const Tensor gradient = Keys(id);
    if (h_.heads == h_.kv_heads) {
      graph_->Multiply(across, right, gradient);
      return;
    }
    const Tensor of_heads = graph_->Between(KeyDims(h_.heads), DnnData::kBf16);
    graph_->Multiply(across, right, of_heads);
    graph_->Reduce(DnnReduce::kAdd, of_heads, gradient);
  }

  const AttentionHeads h_;
  std::unique_ptr<DnnGraph> graph_;
  const Dims rows_;
  const Dims scores_;
  Tensor scale_;
};

}  // namespace

std::unique_ptr<DnnGraph> AttentionForwardGraph(const gpu::CudnnApi& api,
                                                const AttentionHeads& heads) {
  return Graph(api, heads).Forward();
}
std::unique_ptr<DnnGraph> AttentionBackwardGraph(const gpu::CudnnApi& api,
                                                 const AttentionHeads& heads) {
  return Graph(api, heads).Backward();
}

}  // namespace geminid::kernels
