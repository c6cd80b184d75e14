// How kernels are launched: by CUDA, or, for tests on machines without a GPU, by whoever compiles
// these files as plain C++ with GEMINID_CUDA_ON_HOST and brings CUDA's words before them.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_LAUNCH_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_LAUNCH_CUH_

#ifndef GEMINID_CUDA_ON_HOST
#include <cuda_runtime.h>
#endif

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels::cuda {

// Queues kernel(arguments...) on `stream`. kUnsupported if CUDA refuses it.
template <class... Parameters, class... Arguments>
Status LaunchKernel(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                    CudaStream stream, const Arguments&... arguments) {
#ifdef GEMINID_CUDA_ON_HOST
  static_cast<void>(stream);
  cuda_on_host::Run(blocks, threads, [&] { kernel(arguments...); });
  return Status::kOk;
#else
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  return cudaGetLastError() == cudaSuccess ? Status::kOk : Status::kUnsupported;
#endif
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_LAUNCH_CUH_
