// The few kernels that the probes launch, as PTX text that every driver since R450 compiles when it
// is loaded. Building this program needs no CUDA compiler, and it has no machine code that ages.
//
// All take a one-dimensional grid of one-dimensional blocks.
//   spin(out, n)           n dependent fused multiply-adds per thread: arithmetic, no memory
//   copy(to, from, n)      n 16-byte words, each thread strides by the grid: memory, no arithmetic
//   count(from, n, value, out)  adds the number of 32-bit words other than `value` to *out
//   multiply(out, n)       n times 8 independent bf16 products of 16 x 8 x 16 per warp
#ifndef GEMINID_TOOLS_GPU_VERIFY_KERNELS_H_
#define GEMINID_TOOLS_GPU_VERIFY_KERNELS_H_

#include <cstdint>
#include <string>

#include "tools/gpu-verify/device.h"

namespace geminid::gpu_verify {

inline constexpr unsigned kBlockThreads = 256;
// Floating-point operations per warp and iteration of `multiply`.
inline constexpr double kMultiplyFlops = 8.0 * 2 * 16 * 8 * 16;

std::string KernelText();

class Kernels {
 public:
  // Needs the context; throws ProbeError on devices older than compute capability 8.0.
  explicit Kernels(const Gpu& gpu);
  unsigned grid() const { return grid_; }  // blocks that fill the device
  void Spin(const Stream& stream, CUdeviceptr out, uint32_t n) const;
  void Copy(const Stream& stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) const;
  void Count(const Stream& stream, CUdeviceptr from, uint64_t bytes, uint32_t value,
             CUdeviceptr out) const;
  void Multiply(const Stream& stream, CUdeviceptr out, uint32_t n) const;

 private:
  CUfunction Find(CUmodule module, const char* name) const;
  void Launch(CUfunction function, const Stream& stream, void** arguments) const;

  const Gpu& gpu_;
  unsigned grid_ = 0;
  CUfunction spin_ = nullptr;
  CUfunction copy_ = nullptr;
  CUfunction count_ = nullptr;
  CUfunction multiply_ = nullptr;
};

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_KERNELS_H_
