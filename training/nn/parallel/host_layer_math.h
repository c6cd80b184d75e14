// The arithmetic of layers whose memory is the host's.
#ifndef GEMINID_TRAINING_NN_PARALLEL_HOST_LAYER_MATH_H_
#define GEMINID_TRAINING_NN_PARALLEL_HOST_LAYER_MATH_H_

#include <cstddef>
#include <memory>

#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/layer_math.h"
#include "training/nn/parallel/memory.h"

namespace geminid::collectives {

// Products and attention run on `pool`, which may be null. `pool` and `memory`, from which the
// kernels' workspaces come, outlive the result.
std::unique_ptr<LayerMath> MakeHostLayerMath(kernels::ThreadPool* pool, Memory& memory);

// The workspace bytes of OperandMath<T>::ColumnSum. In bf16 it widens some rows at a time.
template <typename T>
size_t HostColumnSumBytes(size_t rows, size_t columns);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_HOST_LAYER_MATH_H_
