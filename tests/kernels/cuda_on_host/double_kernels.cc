// The kernels of the double, by name: the CUDA sources as plain C++. They are a library of their
// own, so that the double does not depend on the project's kernels.
#include <cstddef>

#include "kernels/runtime/cuda/launcher.h"
#include "tests/kernels/cuda_on_host/registry.h"

namespace geminid::kernels::cuda {

// The sources contain the launching functions, too. No code calls them here, because a launch goes
// through a driver, and the driver is the double.
Status KernelSite::Launch(size_t, unsigned, const void*, CudaStream) {
  return Status::kUnsupported;
}

}  // namespace geminid::kernels::cuda

using geminid::cuda_on_host::FindHostKernel;
using geminid::cuda_on_host::HostKernel;

#define GEMINID_EXPORT extern "C" __attribute__((visibility("default")))
// The double looks up these names.
// NOLINTBEGIN(readability-identifier-naming)
GEMINID_EXPORT bool geminid_double_find_kernel(const char* name, size_t* argument_bytes) {
  const HostKernel* const kernel = FindHostKernel(name);
  if (kernel == nullptr) return false;
  *argument_bytes = kernel->argument_bytes;
  return true;
}

GEMINID_EXPORT void geminid_double_run_kernel(const char* name, unsigned blocks, unsigned threads,
                                              const void* argument) {
  geminid::cuda_on_host::RunHostKernel(*FindHostKernel(name), blocks, threads, argument);
}
// NOLINTEND(readability-identifier-naming)
