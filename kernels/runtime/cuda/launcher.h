// Launches kernels from the fat binaries in this program, through the driver that the process has
// loaded, without the CUDA runtime. Without a driver, or in a program built without a CUDA
// compiler, launches are refused, and LastRefusal says why.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_LAUNCHER_H_
#define GEMINID_KERNELS_RUNTIME_CUDA_LAUNCHER_H_

#include <atomic>
#include <cstddef>
#include <string>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels::cuda {

// The most blocks of one launch.
inline constexpr size_t kBlocksMax = (size_t{1} << 31) - 1;

// One kernel, found in its fat binary at the first launch. Thread-safe; lives to the process's end.
class KernelSite {
 public:
  // The names must live as long as the site.
  constexpr KernelSite(const char* image, const char* kernel) : image_(image), kernel_(kernel) {}

  // Queues `blocks` blocks of `threads` threads; for 0 blocks nothing. Copies the argument before
  // it returns. kUnsupported if the launch is refused, and LastRefusal then says why; kSizeOverflow
  // for more than kBlocksMax blocks.
  Status Launch(size_t blocks, unsigned threads, const void* argument, CudaStream stream);

 private:
  const char* const image_;
  const char* const kernel_;
  std::atomic<void*> handle_ = nullptr;
};

// Why the calling thread's last refused launch was refused: one sentence, for a message. Empty if
// none was.
std::string LastRefusal();

// False if this program was built without a CUDA compiler, and so has no kernels.
bool HasKernelImages();

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_LAUNCHER_H_
