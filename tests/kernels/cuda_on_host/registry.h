// The CUDA kernels compiled as plain C++, by name: what stands in for a GPU in tests. For what
// kernels compute, not how fast; one-dimensional grids and blocks.
#ifndef GEMINID_TESTS_KERNELS_CUDA_ON_HOST_REGISTRY_H_
#define GEMINID_TESTS_KERNELS_CUDA_ON_HOST_REGISTRY_H_

#include <cstddef>
#include <string_view>
#include <vector>

namespace geminid::cuda_on_host {

struct HostKernel {
  const char* name;
  size_t argument_bytes;                 // of its one parameter
  unsigned threads;                      // of a block
  void (*thread)(const void* argument);  // what one of them does
};

// Null if there is none of that name.
const HostKernel* FindHostKernel(std::string_view name);

// In order of their names.
std::vector<HostKernel> AllHostKernels();

// Runs `blocks` blocks on the calling thread, one after the other, each thread of a block a fiber
// that runs until it waits for the others. Where several host threads do so at once, one waits for
// the other. Blocks run in the order that `order` makes of their numbers, so that a test can look
// for kernels that depend on it.
enum class BlockOrder { kForward, kBackward };
void RunHostKernel(const HostKernel& kernel, unsigned blocks, unsigned threads,
                   const void* argument, BlockOrder order = BlockOrder::kForward);

}  // namespace geminid::cuda_on_host

#endif  // GEMINID_TESTS_KERNELS_CUDA_ON_HOST_REGISTRY_H_
