// The driver's error of a refused launch, for those who tell one that passes from one that stays.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_REFUSAL_H_
#define GEMINID_KERNELS_RUNTIME_CUDA_REFUSAL_H_

namespace geminid::kernels::cuda {

// That of the calling thread's last one (LastRefusal), as the driver counts them; 0: it was not
// asked.
int LastRefusalCode();

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_REFUSAL_H_
