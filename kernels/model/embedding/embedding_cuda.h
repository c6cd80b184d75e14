#ifndef GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_CUDA_H_
#define GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/embedding/embedding.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/embedding/embedding.h on a GPU, with the bits of the host: gradients of a row are
// summed in token order, without atomics. The ids lie on the device and are not checked: one that
// is no row of the table counts as a row of another rank.
namespace geminid::kernels {

template <typename T>
Status EmbeddingForwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* table,
                            const T* position_table, size_t sequence, T* y, CudaStream stream);

// No workspace: the first token of each row looks for the others, which costs tokens^2 comparisons
// spread over the device, and takes the row's sum.
template <typename T>
Status EmbeddingBackwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                             T* dtable, bool accumulate, CudaStream stream);

template <typename T>
Status PositionEmbeddingBackwardCuda(size_t batch, size_t sequence, size_t hidden, const T* dy,
                                     T* dpositions, bool accumulate, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_CUDA_H_
