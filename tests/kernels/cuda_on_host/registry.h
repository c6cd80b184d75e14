// The CUDA kernels by name, compiled as plain C++. They replace a GPU in tests of results, not of
// speed. Grids and blocks have one dimension.
#ifndef GEMINID_TESTS_KERNELS_CUDA_ON_HOST_REGISTRY_H_
#define GEMINID_TESTS_KERNELS_CUDA_ON_HOST_REGISTRY_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace geminid::cuda_on_host {

struct HostKernel {
  const char* name;
  size_t argument_bytes;                 // of the kernel's one parameter
  unsigned threads;                      // of a block
  void (*thread)(const void* argument);  // the work of one thread
};

// Null if there is no kernel of that name.
const HostKernel* FindHostKernel(std::string_view name);

// In order of their names.
std::vector<HostKernel> AllHostKernels();

// Runs `blocks` blocks on the calling thread, one after another. Each thread of a block is a fiber,
// which runs until it waits for the others. If several host threads call this, they take turns.
// Blocks run in the order `order`, so that a test can find kernels that depend on it.
enum class BlockOrder { kForward, kBackward };
void RunHostKernel(const HostKernel& kernel, unsigned blocks, unsigned threads,
                   const void* argument, BlockOrder order = BlockOrder::kForward);

}  // namespace geminid::cuda_on_host

#endif  // GEMINID_TESTS_KERNELS_CUDA_ON_HOST_REGISTRY_H_
