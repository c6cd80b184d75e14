#ifndef GEMINID_KERNELS_NUMERIC_SPLIT_MASTER_SPLIT_MASTER_CUDA_H_
#define GEMINID_KERNELS_NUMERIC_SPLIT_MASTER_SPLIT_MASTER_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/numeric/split_master on a GPU, with the same bits. If `remainder` is null,
// SplitMasterCuda drops the remainders and JoinMasterCuda takes them as 0.
namespace geminid::kernels {

Status SplitMasterCuda(const float* master, size_t count, BFloat16* weight, int16_t* remainder,
                       CudaStream stream);
Status JoinMasterCuda(const BFloat16* weight, const int16_t* remainder, size_t count, float* master,
                      CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_SPLIT_MASTER_SPLIT_MASTER_CUDA_H_
