#ifndef GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_ADAMW_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_ADAMW_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/compact_adamw/compact_adamw.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// AdamWCompact (kernels/optimizers/compact_adamw/compact_adamw.h) on a GPU, with its bits and its
// instances. A warp updates a block of kQuantiseBlock parameters; nothing but the state is read or
// written.
template <class Weights, class Moments, typename Gradient>
Status AdamWCompactCuda(const AdamWOptions& options, uint64_t first_element,
                        const CompactState<Weights, Moments>& old_state, const Gradient* gradient,
                        size_t count, const CompactState<Weights, Moments>& new_state,
                        CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_ADAMW_CUDA_H_
