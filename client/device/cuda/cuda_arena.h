// The arena of a GPU: imported slabs, side by side at fixed addresses.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_ARENA_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/device/cuda/cuda_context.h"
#include "client/device/slab_ranges.h"

namespace geminid::device {

// The unit in which memory of the GPU is allocated and mapped.
absl::StatusOr<uint64_t> GranularityOf(CudaContext& context);

// Reserve, Import and Release are for one thread. After Reserve the other functions are for any.
class CudaArena {
 public:
  CudaArena(std::shared_ptr<CudaContext> context, uint64_t granularity_bytes);
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;
  ~CudaArena();

  absl::Status Reserve(uint64_t bytes);
  absl::Status Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes);
  absl::Status Release();

  std::byte* base() const { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(base_)); }
  uint64_t reserved_bytes() const { return reserved_bytes_; }
  uint64_t imported_bytes() const { return imported_bytes_; }
  bool Contains(const void* place) const {
    const auto at = reinterpret_cast<uintptr_t>(place);
    return at >= base_ && at - base_ < reserved_bytes_;
  }

 private:
  absl::Status Map(CUmemGenericAllocationHandle handle, CUdeviceptr address, uint64_t bytes);

  const std::shared_ptr<CudaContext> context_;
  const uint64_t granularity_bytes_;
  SlabRanges slabs_;
  CUdeviceptr base_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t imported_bytes_ = 0;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_ARENA_H_
