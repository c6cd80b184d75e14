// Causal attention as a cuDNN graph: the single operations of attention.h, which the library
// recognises and runs as one kernel. Internal to attention.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_GRAPH_CUDA_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_GRAPH_CUDA_H_

#include <cstdint>
#include <memory>

#include "gpu/cudnn_api.h"
#include "kernels/runtime/cuda/dnn_graph.h"

namespace geminid::kernels {

// The bf16 heads of one call, from one or several sequences.
struct AttentionHeads {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t sequence = 0;
  int64_t head_dim = 0;
  int64_t query_stride = 0;  // between tokens, of q, out and their gradients
  int64_t kv_stride = 0;     // of k, v and their gradients
};

// The ids of the graphs' tensors (DnnGraph::Run).
enum AttentionTensor : int64_t {
  kAttentionQ = 1,
  kAttentionK,
  kAttentionV,
  kAttentionOut,
  kAttentionLse,  // fp32 [batch, heads, sequence]
  kAttentionDout,
  kAttentionDq,
  kAttentionDk,
  kAttentionDv,
  kAttentionRowSums,  // fp32 [batch, heads, sequence]: workspace of the backward pass
  kAttentionScale,    // by value
  kAttentionMasked,   // by value: minus infinity
  kAttentionOne,      // by value: 1
};

// The graph is not planned yet; `api` outlives it.
std::unique_ptr<DnnGraph> AttentionForwardGraph(const gpu::CudnnApi& api,
                                                const AttentionHeads& heads);
std::unique_ptr<DnnGraph> AttentionBackwardGraph(const gpu::CudnnApi& api,
                                                 const AttentionHeads& heads);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_GRAPH_CUDA_H_
