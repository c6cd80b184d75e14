#include "kernels/optimizers/lamb/lamb_cuda.h"
#include "kernels/optimizers/lamb/lamb_rule.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels {
namespace cuda {
GEMINID_MEASURE_KERNELS(lamb, PlainRule<LambUpdateRule>);

// Computes the rate of every tensor from its norms.
struct LambFactors {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const uint64_t t = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (t < count)
      factors[t] = static_cast<float>(options.learning_rate * LambTrustOf(options, norms[t]));
  }

  LambOptions options;
  const LambNorms* norms;
  float* factors;
  uint64_t count;
};
GEMINID_KERNEL(geminid_lamb_factors, LambFactors);

// LambRule with its own rate, or with one that the device has computed.
struct MeasuredLambRule {
  static constexpr int kStates = LambRule::kStates;

  __device__ void operator()(size_t /* at */, Element<float>& e) const {
    rule.Update(e, factor == nullptr ? rule.rate : *factor);
  }

  LambRule rule;
  const float* factor;
};
GEMINID_UPDATE_KERNELS(lamb, MeasuredLambRule);

}  // namespace cuda

size_t LambWorkspaceBytes(size_t count) { return cuda::NormsWorkspaceBytes(count); }

Status LambAddNormsCuda(const LambOptions& options, const ConstParameterArrays& arrays,
                        const GradientArray& gradient, size_t count, double* workspace,
                        size_t workspace_bytes, LambNorms* norms, CudaStream stream) {
  if (norms == nullptr) return Status::kNullPointer;
  LambUpdateRule rule;
  Status status = MakeRule(options, &rule);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, rule.kStates);
  if (status != Status::kOk || count == 0) return status;
  return cuda::Measure<cuda::Columns::kNone>(
      cuda::PlainRule<LambUpdateRule>{rule}, {arrays, gradient, cuda::RowBlocks(count, 0, count)},
      workspace, workspace_bytes,
      {.result = &norms->update_squares, .weight = &norms->weight_squares}, stream);
}

Status LambApplyCuda(const LambOptions& options, const LambNorms* norms, const CudaTensor* tensors,
                     size_t tensor_count, float* factors, CudaStream stream) {
  LambRule rule;
  Status status = MakeRule(options, LambNorms(), &rule);
  if (status == Status::kOk) {
    status = cuda::CheckTensors(tensors, tensor_count, LambRule::kStates);
  }
  if (status == Status::kOk) {
    status = CheckBuffers({Buffer::Of(norms, tensor_count)}, {Buffer::Of(factors, tensor_count)});
  }
  if (status == Status::kOk) {
    status = cuda::LaunchKernel(cuda::LambFactors{options, norms, factors, tensor_count},
                                cuda::BlocksFor(tensor_count, cuda::LambFactors::kThreads), stream);
  }
  if (status != Status::kOk) return status;
  const auto rule_of = [&](size_t tensor) {
    return cuda::MeasuredLambRule{rule, factors + tensor};
  };
  return cuda::Update(rule_of, tensors, tensor_count, stream);
}

Status LambApplyTensorCuda(const LambOptions& options, const LambNorms& norms,
                           const CudaTensor& tensor, CudaStream stream) {
  LambRule rule;
  Status status = MakeRule(options, norms, &rule);
  if (status == Status::kOk) status = cuda::CheckTensors(&tensor, 1, LambRule::kStates);
  if (status != Status::kOk) return status;
  const auto rule_of = [&](size_t /* tensor */) { return cuda::MeasuredLambRule{rule, nullptr}; };
  return cuda::Update(rule_of, &tensor, 1, stream);
}

}  // namespace geminid::kernels
