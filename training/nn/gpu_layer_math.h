// The arithmetic of a grid's layers (training/nn/parallel/layer_math.h) on a GPU.
#ifndef GEMINID_TRAINING_NN_GPU_LAYER_MATH_H_
#define GEMINID_TRAINING_NN_GPU_LAYER_MATH_H_

#include <memory>

#include "geminid/zero.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parallel/layer_math.h"

namespace geminid::trainer {

// Products, attention, casts and tables are those of `math`. Everything runs on `queue`. Both
// outlive this object.
class GpuLayerMath : public collectives::LayerMath {
 public:
  static std::unique_ptr<GpuLayerMath> Make(const ModelKernels& math, GpuQueue& queue);

  // From now on workspaces come from here. Call this before any arithmetic.
  virtual void Bind(zero::Workspace& workspace) = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_LAYER_MATH_H_
