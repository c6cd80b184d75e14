// The driver's error of a refused launch, for callers that tell transient from lasting errors.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_REFUSAL_H_
#define GEMINID_KERNELS_RUNTIME_CUDA_REFUSAL_H_

namespace geminid::kernels::cuda {

// The driver's error code of the calling thread's last refused launch (LastRefusal); 0 if the
// driver was not asked.
int LastRefusalCode();

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_REFUSAL_H_
