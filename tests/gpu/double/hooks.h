// What the double's libraries (cuBLASLt, NCCL) use of its driver, beside the driver's own calls:
// they are shared objects of their own, as the real ones are, and find it in the process.
#ifndef GEMINID_TESTS_GPU_DOUBLE_HOOKS_H_
#define GEMINID_TESTS_GPU_DOUBLE_HOOKS_H_

#include <cstddef>

#include "gpu/driver_api.h"

namespace geminid::gpu_double {

// What a stream does when its turn comes. Other than CUDA_SUCCESS stays the context's error. It
// frees `data`.
using StreamWork = CUresult (*)(void* data);

struct Hooks {
  // Of the calling thread's current context. Errors of cuLaunchKernel; `data` is then the caller's.
  CUresult (*enqueue)(CUstream stream, StreamWork work, void* data) = nullptr;
  // Where the bytes at a device address lie, or null: not all of them may be accessed so.
  void* (*mirror)(const void* address, size_t bytes, bool writes) = nullptr;
  // Of the calling thread's current context, within the node; -1: it has none.
  int (*current_device)() = nullptr;
};

// Of the driver that the process has loaded; null if that is no double.
const Hooks* FindHooks();

// The symbol of the driver double.
inline constexpr char kHooksSymbol[] = "geminid_double_hooks";

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_HOOKS_H_
