// The double's memory. Device memory is memfds, so that other processes can import it. Its
// addresses have no memory behind them: a process that touches one is killed. The double accesses
// the bytes through a second mapping, the mirror, at a constant distance for each reserved range.
#ifndef GEMINID_TESTS_GPU_DOUBLE_MEMORY_H_
#define GEMINID_TESTS_GPU_DOUBLE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "gpu/driver_api.h"

namespace geminid::gpu_double {

enum class Access { kNone, kRead, kReadWrite };

// A handle of cuMemCreate or of an import. Descriptors count as use of the device's memory.
struct Allocation {
  int fd = -1;
  int device = 0;
  uint64_t bytes = 0;
  bool exportable = false;
};

// Thread-safe. Returns the driver's results.
class DeviceMemory {
 public:
  static DeviceMemory& Get();

  CUresult Create(int device, uint64_t bytes, bool exportable,
                  CUmemGenericAllocationHandle* handle);
  CUresult Release(CUmemGenericAllocationHandle handle);
  CUresult Export(CUmemGenericAllocationHandle handle, int* fd);
  CUresult Import(int fd, CUmemGenericAllocationHandle* handle);

  CUresult Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr* address);
  CUresult FreeReserved(CUdeviceptr address, uint64_t bytes);
  CUresult Map(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
  CUresult Unmap(CUdeviceptr address, uint64_t bytes);
  CUresult SetAccess(CUdeviceptr address, uint64_t bytes, Access access);

  // cuMemAlloc: all of the above steps at once.
  CUresult Allocate(int device, uint64_t bytes, CUdeviceptr* address);
  CUresult Free(CUdeviceptr address);

  // Whether all of [address, address + bytes) is mapped, whatever the access.
  bool IsMapped(CUdeviceptr address, uint64_t bytes);
  // Where the double finds the bytes, if all of them allow this access; else null.
  std::byte* Mirror(CUdeviceptr address, uint64_t bytes, Access access);
  // Whether an address lies in any reserved range, or ends one.
  bool IsReserved(CUdeviceptr address);
  // The mirror's address of one in a mapped range; other words unchanged. For kernels' arguments.
  uint64_t Translate(uint64_t word);

 private:
  struct Range {  // reserved
    uint64_t bytes = 0;
    std::byte* mirror = nullptr;
    bool plain = false;  // of cuMemAlloc
  };
  struct Mapping {
    uint64_t bytes = 0;
    int fd = -1;
    Access access = Access::kNone;
  };
  using Ranges = std::map<CUdeviceptr, Range>;
  using Mappings = std::map<CUdeviceptr, Mapping>;

  Ranges::iterator RangeOf(CUdeviceptr address, uint64_t bytes);
  // The first of the mappings that cover [address, address + bytes) without a gap; or end().
  Mappings::iterator Covering(CUdeviceptr address, uint64_t bytes);
  bool CoversWhole(CUdeviceptr address, uint64_t bytes);
  void Remove(Mappings::iterator mapping);

  std::recursive_mutex mutex_;
  std::map<CUmemGenericAllocationHandle, Allocation> handles_;
  CUmemGenericAllocationHandle next_handle_ = 1;
  Ranges ranges_;
  Mappings mappings_;
};

// Host memory that the driver of this process has pinned. Thread-safe.
class HostMemory {
 public:
  static HostMemory& Get();

  CUresult Allocate(uint64_t bytes, void** data);
  CUresult Free(void* data);
  CUresult Register(void* data, uint64_t bytes);
  CUresult Unregister(void* data);
  bool IsPinned(const void* data, uint64_t bytes);

 private:
  struct Pinned {
    uint64_t bytes = 0;
    bool own = false;  // of Allocate
  };
  std::mutex mutex_;
  std::map<uintptr_t, Pinned> pinned_;
};

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_MEMORY_H_
