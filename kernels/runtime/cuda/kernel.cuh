// A kernel is a struct: its members are the arguments, `kThreads` is the size of its blocks, and
// Run() is the code of each thread:
//
//   template <typename T>
//   struct Double {
//     static constexpr unsigned kThreads = 256;
//     __device__ void Run() const { ... }
//     T* values;
//   };
//   GEMINID_KERNEL(geminid_double_bf16, Double<BFloat16>);
//   ... LaunchKernel(Double<BFloat16>{values}, blocks, stream);
//
// A *_cuda.cu file is compiled twice. nvcc makes a fat binary that holds only its kernels, each an
// extern "C" function with one parameter, the struct. The C++ compiler makes the functions that
// launch kernels (kernels/runtime/cuda/launcher.h) by name; a kernel that GEMINID_KERNEL has not
// named does not compile. Neither needs the CUDA runtime.
//
// Tests compile the files a third time, with GEMINID_CUDA_ON_HOST, as plain C++ that runs.
//
// Rules: the name of each kernel and of each struct is unique in the whole program; shared memory
// is static and at most 48 KiB; all threads of a block that have not returned run the same
// __syncthreads, __syncwarp and shuffles in the same order, shuffles by whole warps too.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_KERNEL_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_KERNEL_CUH_

#include <cstddef>
#include <type_traits>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/launcher.h"
#ifndef __CUDACC__
#include "kernels/runtime/cuda/words.h"
#endif

namespace geminid::kernels::cuda {

// The bytes of parameters that a kernel may have on every device that we compile for.
inline constexpr size_t kArgumentBytes = 4096;

// GEMINID_KERNEL defines `value` for the structs that it names.
template <class Kernel>
struct KernelName;

// Queues kernel.Run() in `blocks` blocks; for 0 blocks nothing. kUnsupported if refused.
template <class Kernel>
Status LaunchKernel(Kernel kernel, size_t blocks, CudaStream stream) {
  static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= kArgumentBytes);
#ifndef __CUDACC__
  // Clears the padding: the tests' driver searches the argument's words for addresses.
  __builtin_clear_padding(&kernel);
#endif
  static KernelSite site(GEMINID_KERNEL_IMAGE, KernelName<Kernel>::value);
  return site.Launch(blocks, Kernel::kThreads, &kernel, stream);
}

// The blocks that must fit on a multiprocessor: a kernel's kMinBlocks, which bounds its registers.
// 0 leaves the choice to the compiler.
template <class Kernel>
constexpr unsigned MinBlocks() {
  if constexpr (requires { Kernel::kMinBlocks; }) {
    return Kernel::kMinBlocks;
  } else {
    return 0;
  }
}

// Blocks of `per_block` that cover `count`.
__host__ __device__ constexpr size_t BlocksFor(size_t count, size_t per_block) {
  return (count + per_block - 1) / per_block;
}

}  // namespace geminid::kernels::cuda

#if defined(__CUDACC__)
#define GEMINID_KERNEL_ENTRY(name)                                                   \
  extern "C" __global__ void __launch_bounds__(                                      \
      name##_kernel::kThreads, ::geminid::kernels::cuda::MinBlocks<name##_kernel>()) \
      name(const __grid_constant__ name##_kernel kernel) {                           \
    kernel.Run();                                                                    \
  }
#elif defined(GEMINID_CUDA_ON_HOST)
#define GEMINID_KERNEL_ENTRY(name)                                 \
  const ::geminid::cuda_on_host::Registration name##_registration( \
      #name, sizeof(name##_kernel), name##_kernel::kThreads,       \
      [](const void* kernel) { static_cast<const name##_kernel*>(kernel)->Run(); });
#else
#define GEMINID_KERNEL_ENTRY(name)
#endif

// Names a kernel; in namespace geminid::kernels::cuda, before it is launched.
#define GEMINID_KERNEL(name, ...)               \
  using name##_kernel = __VA_ARGS__;            \
  template <>                                   \
  struct KernelName<name##_kernel> {            \
    static constexpr const char* value = #name; \
  };                                            \
  GEMINID_KERNEL_ENTRY(name)                    \
  static_assert(true)

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_KERNEL_CUH_
