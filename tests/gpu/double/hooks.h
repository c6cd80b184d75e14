// The functions of the driver double that its libraries (cuBLASLt, NCCL) use besides the driver's
// own calls. These are separate shared objects, like the real ones, and find it in the process.
#ifndef GEMINID_TESTS_GPU_DOUBLE_HOOKS_H_
#define GEMINID_TESTS_GPU_DOUBLE_HOOKS_H_

#include <cstddef>

#include "gpu/driver_api.h"

namespace geminid::gpu_double {

// Work that a stream does in its turn. A result other than CUDA_SUCCESS stays as the context's
// error. The work frees `data`.
using StreamWork = CUresult (*)(void* data);

struct Hooks {
  // Queues on a stream of the current context. On cuLaunchKernel's errors the caller owns `data`.
  CUresult (*enqueue)(CUstream stream, StreamWork work, void* data) = nullptr;
  // The bytes at a device address, or null if not all of them may be accessed.
  void* (*mirror)(const void* address, size_t bytes, bool writes) = nullptr;
  // The current context's device, by its number in the node; -1: there is no current context.
  int (*current_device)() = nullptr;
};

// The hooks of the driver that the process has loaded; null if it is no double.
const Hooks* FindHooks();

// The symbol of the driver double.
inline constexpr char kHooksSymbol[] = "geminid_double_hooks";

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_HOOKS_H_
