#ifndef GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_CUDA_H_
#define GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/embedding/embedding.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/embedding/embedding.h on a GPU, with the bits of the host and without atomics. The
// ids are in device memory and are not checked: an id outside of the table counts as a row of
// another rank.
namespace geminid::kernels {

template <typename T>
Status EmbeddingForwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* table,
                            const T* position_table, size_t sequence, T* y, CudaStream stream);

// Bytes of workspace on the device for the backward pass: 12 per token, 2 KiB per 1024 tokens, and
// one fp32 row per kEmbeddingChunkTokens tokens.
size_t EmbeddingCudaWorkspaceBytes(const EmbeddingShape& shape);

// Sorts the tokens by row, then sums. Cost O(tokens * hidden + rows * hidden), spread over the
// device even if one token occurs very often. `workspace` is 64-byte aligned.
template <typename T>
Status EmbeddingBackwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                             T* dtable, bool accumulate, void* workspace, size_t workspace_bytes,
                             CudaStream stream);

template <typename T>
Status PositionEmbeddingBackwardCuda(size_t batch, size_t sequence, size_t hidden, const T* dy,
                                     T* dpositions, bool accumulate, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_CUDA_H_
