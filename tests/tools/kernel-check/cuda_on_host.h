// CUDA's words for plain C++: kernels run on the host, one block after the other, each thread a
// fiber that runs until it waits for the others. For testing what kernels compute, not how fast.
//
// Included before everything else by the files that are compiled this way. Limits: one-dimensional
// grids and blocks; every thread of a block that has not ended meets the same __syncthreads and
// shuffles in the same order.
#ifndef GEMINID_TESTS_TOOLS_KERNEL_CHECK_CUDA_ON_HOST_H_
#define GEMINID_TESTS_TOOLS_KERNEL_CHECK_CUDA_ON_HOST_H_

#include <cmath>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads)

namespace geminid::cuda_on_host {

struct Index {
  unsigned x;
};
inline Index thread_index;
inline Index block_index;

// Calls `kernel` for every thread of every block.
void Run(unsigned blocks, unsigned threads, const std::function<void()>& kernel);

// Waits until every thread of the block is here or has ended.
void Wait();

// A value of each thread, 8 bytes at most, between two waits.
std::byte* Slot(unsigned thread);

}  // namespace geminid::cuda_on_host

#define threadIdx ::geminid::cuda_on_host::thread_index
#define blockIdx ::geminid::cuda_on_host::block_index

inline void __syncthreads() { geminid::cuda_on_host::Wait(); }

template <typename T>
T __shfl_down_sync(unsigned /* mask */, T value, unsigned delta, unsigned width) {
  static_assert(sizeof(T) <= 8);
  const unsigned me = threadIdx.x;
  std::memcpy(geminid::cuda_on_host::Slot(me), &value, sizeof(T));
  geminid::cuda_on_host::Wait();
  const unsigned from = me % width + delta < width ? me + delta : me;
  std::memcpy(&value, geminid::cuda_on_host::Slot(from), sizeof(T));
  geminid::cuda_on_host::Wait();
  return value;
}

#endif  // GEMINID_TESTS_TOOLS_KERNEL_CHECK_CUDA_ON_HOST_H_
