// CUDA's keywords and functions for the C++ compiler, so that files with kernels can be
// compiled without nvcc. Only tests define the functions (tests/kernels/cuda_on_host): they run
// one block after the other, with each thread a fiber. Elsewhere no kernel's body is compiled.
// One kernel of a process runs at a time, so the own data of blocks and threads is plain
// static.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_WORDS_H_
#define GEMINID_KERNELS_RUNTIME_CUDA_WORDS_H_

#include <cmath>
#include <cstddef>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's.
#define __device__
#define __host__
#define __shared__ static  // of the block that runs
// NOLINTEND(bugprone-reserved-identifier)

namespace geminid::cuda_on_host {

struct Index {
  unsigned x;
};

extern Index thread_index;
extern Index block_index;

// Waits until every thread of the block is here or has ended.
void Wait();

// Exchanges 8 bytes between the threads of the block. Show writes the thread's own and waits; Shown
// reads another thread's, until the next Show.
void Show(const void* value, size_t bytes);
void Shown(unsigned thread, void* value, size_t bytes);

// A kernel for the registry (tests/kernels/cuda_on_host/registry.h).
class Registration {
 public:
  using Thread = void (*)(const void* argument);
  Registration(const char* name, size_t argument_bytes, unsigned threads, Thread thread);
};

template <typename T>
T ValueOf(unsigned thread, T mine) {
  static_assert(sizeof(T) <= 8);
  Show(&mine, sizeof(T));
  Shown(thread, &mine, sizeof(T));
  return mine;
}

}  // namespace geminid::cuda_on_host

#define threadIdx ::geminid::cuda_on_host::thread_index
#define blockIdx ::geminid::cuda_on_host::block_index

// NOLINTBEGIN(bugprone-reserved-identifier)
inline void __syncthreads() { geminid::cuda_on_host::Wait(); }
inline void __syncwarp() { geminid::cuda_on_host::Wait(); }

template <typename T>
T __shfl_down_sync(unsigned /* mask */, T value, unsigned delta, unsigned width) {
  const unsigned me = threadIdx.x;
  return geminid::cuda_on_host::ValueOf(me % width + delta < width ? me + delta : me, value);
}

template <typename T>
T __shfl_xor_sync(unsigned /* mask */, T value, unsigned lanes, unsigned /* width */) {
  return geminid::cuda_on_host::ValueOf(threadIdx.x ^ lanes, value);
}
// NOLINTEND(bugprone-reserved-identifier)

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_WORDS_H_
