#include "kernels/adamw/adamw_cuda.h"

#include "kernels/adamw/adamw_coefficients.h"
#include "kernels/adamw/adamw_rule.h"
#include "kernels/common/float_environment.h"
#include "kernels/cuda/multi_tensor.cuh"

namespace geminid::kernels {
namespace {

struct Rule {
  AdamWCoefficients k;

  __device__ void operator()(float gradient, float /* factor */, float* weight,
                             float* states) const {
    AdamWRule(k, gradient, weight, &states[0], &states[1]);
  }
};

template <class T>
Status Run(const AdamWOptions& options, const T* tensors, size_t tensor_count, CudaStream stream) {
  const ScopedFloatEnvironment environment;
  Rule rule;
  const Status status = DeriveAdamWCoefficients(options, &rule.k);
  return status != Status::kOk ? status : cuda::Update(rule, tensors, tensor_count, stream);
}

}  // namespace

Status AdamWCuda(const AdamWOptions& options,
                 const AdamWTensor<cuda::SplitWeight, BFloat16>* tensors, size_t tensor_count,
                 CudaStream stream) {
  return Run(options, tensors, tensor_count, stream);
}

Status AdamWCuda(const AdamWOptions& options, const AdamWTensor<cuda::SplitWeight, float>* tensors,
                 size_t tensor_count, CudaStream stream) {
  return Run(options, tensors, tensor_count, stream);
}

Status AdamWCuda(const AdamWOptions& options,
                 const AdamWTensor<cuda::MasterWeight<void>, float>* tensors, size_t tensor_count,
                 CudaStream stream) {
  return Run(options, tensors, tensor_count, stream);
}

Status AdamWCuda(const AdamWOptions& options,
                 const AdamWTensor<cuda::MasterWeight<Float16>, Float16>* tensors,
                 size_t tensor_count, CudaStream stream) {
  return Run(options, tensors, tensor_count, stream);
}

}  // namespace geminid::kernels
