#include "kernels/optimizers/lars/lars_cuda.h"
#include "kernels/optimizers/lars/lars_rule.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels {
namespace cuda {

// Computes the trust of every tensor from its norms.
struct LarsFactors {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const uint64_t t = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (t < count) factors[t] = static_cast<float>(LarsTrustOf(options, norms[t]));
  }

  LarsOptions options;
  const LarsNorms* norms;
  float* factors;
  uint64_t count;
};
GEMINID_KERNEL(geminid_lars_factors, LarsFactors);

// LarsRule with its own trust, or with one that the device has computed.
struct MeasuredLarsRule {
  static constexpr int kStates = LarsRule::kStates;

  __device__ void operator()(size_t /* at */, Element<float>& e) const {
    rule.Update(e, factor == nullptr ? rule.trust : *factor);
  }

  LarsRule rule;
  const float* factor;
};
GEMINID_UPDATE_KERNELS(lars, MeasuredLarsRule);

}  // namespace cuda

size_t LarsWorkspaceBytes(size_t count) { return cuda::NormsWorkspaceBytes(count); }

Status LarsAddNormsCuda(const LarsOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LarsNorms* norms, CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  Status status = CheckLarsOptions(options);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 0);
  if (status != Status::kOk || count == 0) return status;
  return cuda::MeasureScaledGradients(
      static_cast<float>(options.grad_scale), {arrays, gradient, cuda::RowBlocks(count, 0, count)},
      workspace, workspace_bytes,
      {.result = &norms->gradient_squares, .weight = &norms->weight_squares}, stream);
}

Status LarsApplyCuda(const LarsOptions& options, const LarsNorms* norms, const CudaTensor* tensors,
                     size_t tensor_count, float* factors, CudaStream stream) {
  LarsRule rule;
  Status status = MakeRule(options, LarsNorms(), &rule);
  if (status == Status::kOk) {
    status = cuda::CheckTensors(tensors, tensor_count, LarsRule::kStates);
  }
  if (status == Status::kOk) {
    status = CheckBuffers({Buffer::Of(norms, tensor_count)}, {Buffer::Of(factors, tensor_count)});
  }
  if (status == Status::kOk) {
    status = cuda::LaunchKernel(cuda::LarsFactors{options, norms, factors, tensor_count},
                                cuda::BlocksFor(tensor_count, cuda::LarsFactors::kThreads), stream);
  }
  if (status != Status::kOk) return status;
  const auto rule_of = [&](size_t tensor) {
    return cuda::MeasuredLarsRule{rule, factors + tensor};
  };
  return cuda::Update(rule_of, tensors, tensor_count, stream);
}

Status LarsApplyTensorCuda(const LarsOptions& options, const LarsNorms& norms,
                           const CudaTensor& tensor, CudaStream stream) {
  LarsRule rule;
  Status status = MakeRule(options, norms, &rule);
  if (status == Status::kOk) status = cuda::CheckTensors(&tensor, 1, LarsRule::kStates);
  if (status != Status::kOk) return status;
  const auto rule_of = [&](size_t /* tensor */) { return cuda::MeasuredLarsRule{rule, nullptr}; };
  return cuda::Update(rule_of, &tensor, 1, stream);
}

}  // namespace geminid::kernels
