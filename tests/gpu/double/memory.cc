#include "tests/gpu/double/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {
namespace {

constexpr uint64_t kPageBytes = 4096;
// The gap behind each range, so that its end is the beginning of nothing else: neither of another
// range nor of the host's memory.
constexpr uint64_t kGuardBytes = kPageBytes;

std::byte* Pointer(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
}

bool IsMultiple(uint64_t bytes) { return bytes != 0 && bytes % kGranularityBytes == 0; }

// Where the device's next range begins. A word of an argument that is no address must not look like
// one (DeviceMemory::Translate). An example is a float with padding as its other half, which holds
// whatever was on the stack. So the upper half occurs in no address of the host, and the lower half
// in no float of ordinary size.
void* NextDeviceAddress(uint64_t bytes) {
  constexpr uint64_t kUpperHalf = uint64_t{0x3a5c} << 32;
  constexpr uint64_t kFirst = uint64_t{1} << 24;
  constexpr uint64_t kLast = uint64_t{1} << 29;  // as a float 1e-19
  constexpr uint64_t kHalf = uint64_t{1} << 32;
  static std::mutex mutex;
  static uint64_t next = kUpperHalf + kFirst;
  const std::lock_guard lock(mutex);
  if (next % kHalf + bytes > kLast) next = next / kHalf * kHalf + kHalf + kFirst;
  const uint64_t begin = next;
  next += bytes;
  return reinterpret_cast<void*>(begin);
}

// Reserves addresses without memory, aligned to the granularity, at `hint` if that is free; null if
// there are none left.
std::byte* ReserveAddresses(uint64_t bytes, uint64_t alignment, void* hint = nullptr) {
  void* const data =
      mmap(hint, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
  if (aligned > begin) munmap(data, aligned - begin);
  if (aligned < begin + alignment) {
    munmap(reinterpret_cast<void*>(aligned + bytes), begin + alignment - aligned);
  }
  return reinterpret_cast<std::byte*>(aligned);
}

void Forget(std::byte* place, uint64_t bytes) {
  mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

int ProtectionOf(Access access) {
  return access == Access::kReadWrite ? PROT_READ | PROT_WRITE
         : access == Access::kRead    ? PROT_READ
                                      : PROT_NONE;
}

// False also for a process that has ended and was not waited for: it runs no program.
bool Lives(pid_t pid) {
  char program[1];
  return readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), program, 1) > 0;
}

// The device whose memory the descriptor is, by the name of its memfd; -1 for other descriptors,
// and for memory that no longer exists.
int DeviceOf(int fd) {
  char target[256];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target, sizeof(target) - 1);
  if (length <= 0) return -1;
  target[length] = '\0';
  unsigned long node = 0;
  int device = -1;
  unsigned long serial = 0;
  int exporter = 0;
  if (std::sscanf(target, "/memfd:geminid-gpu-%lu-%d-%lu-%d", &node, &device, &serial, &exporter) !=
          4 ||
      node != ThisNode().id) {
    return -1;
  }
  return ThisNode().memory_goes_with_exporter && !Lives(exporter) ? -1 : device;
}

// Counting reads every descriptor of the machine, so it is done only if needed: memory that was
// freed since the last count makes the bound too high, never too low.
bool HasRoom(const NodeFile& node, int device, uint64_t bytes, std::atomic<uint64_t>* at_most) {
  const uint64_t capacity = node.device[device].memory_bytes;
  const auto fits = [&] { return *at_most <= capacity && bytes <= capacity - *at_most; };
  if (!fits()) *at_most = UsedBytes(node, device);
  return fits();
}

// Makes a memfd of the device; -1 if the device has no room, or the system no descriptor.
int MakeMemory(int device, uint64_t bytes) {
  NodeFile& node = ThisNode();
  const NodeLock lock;
  std::atomic<uint64_t>& used_at_most = node.device[device].used_at_most_bytes;
  if (!HasRoom(node, device, bytes, &used_at_most)) return -1;
  const std::string name = "geminid-gpu-" + std::to_string(node.id) + "-" + std::to_string(device) +
                           "-" + std::to_string(node.serial++) + "-" + std::to_string(getpid());
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return -1;
  }
  used_at_most += bytes;
  if (node.fresh_byte != 0) {
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data != MAP_FAILED) {
      std::memset(data, node.fresh_byte, bytes);
      munmap(data, bytes);
    }
  }
  return fd;
}

}  // namespace

DeviceMemory& DeviceMemory::Get() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

CUresult DeviceMemory::Create(int device, uint64_t bytes, bool exportable,
                              CUmemGenericAllocationHandle* handle) {
  if (!IsMultiple(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const int fd = MakeMemory(device, bytes);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  *handle = next_handle_++;
  handles_[*handle] = {fd, device, bytes, exportable};
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::Release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return CUDA_ERROR_INVALID_VALUE;
  close(found->second.fd);
  handles_.erase(found);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::Export(CUmemGenericAllocationHandle handle, int* fd) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end() || !found->second.exportable) return CUDA_ERROR_INVALID_VALUE;
  *fd = fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
  return *fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult DeviceMemory::Import(int fd, CUmemGenericAllocationHandle* handle) {
  const int device = DeviceOf(fd);
  struct stat status = {};
  if (device < 0 || fstat(fd, &status) != 0) return CUDA_ERROR_INVALID_VALUE;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  *handle = next_handle_++;
  handles_[*handle] = {own, device, static_cast<uint64_t>(status.st_size), true};
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr* address) {
  if (!IsMultiple(bytes) || (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  alignment = alignment < kGranularityBytes ? kGranularityBytes : alignment;
  void* const hint = NextDeviceAddress(bytes + kGuardBytes + alignment);
  std::byte* const outer = ReserveAddresses(bytes + kGuardBytes, alignment, hint);
  std::byte* const mirror = outer == nullptr ? nullptr : ReserveAddresses(bytes, kGranularityBytes);
  if (mirror == nullptr) {
    if (outer != nullptr) munmap(outer, bytes + kGuardBytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<uintptr_t>(outer);
  const std::lock_guard lock(mutex_);
  ranges_[*address] = {bytes, mirror, false};
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::FreeReserved(CUdeviceptr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto range = ranges_.find(address);
  if (range == ranges_.end() || range->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(Pointer(address), bytes + kGuardBytes);
  munmap(range->second.mirror, bytes);
  ranges_.erase(range);
  return CUDA_SUCCESS;
}

DeviceMemory::Ranges::iterator DeviceMemory::RangeOf(CUdeviceptr address, uint64_t bytes) {
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin()) return ranges_.end();
  --range;
  const uint64_t offset = address - range->first;
  const bool within = offset <= range->second.bytes && bytes <= range->second.bytes - offset;
  return within ? range : ranges_.end();
}

DeviceMemory::Mappings::iterator DeviceMemory::Covering(CUdeviceptr address, uint64_t bytes) {
  auto first = mappings_.upper_bound(address);
  if (first == mappings_.begin()) return mappings_.end();
  --first;
  CUdeviceptr end = first->first + first->second.bytes;
  if (address >= end) return mappings_.end();
  for (auto next = std::next(first); end < address + bytes; ++next) {
    if (next == mappings_.end() || next->first != end) return mappings_.end();
    end += next->second.bytes;
  }
  return first;
}

// Whether the range consists of whole adjacent mappings.
bool DeviceMemory::CoversWhole(CUdeviceptr address, uint64_t bytes) {
  CUdeviceptr at = address;
  while (at < address + bytes) {
    const auto mapping = mappings_.find(at);
    if (mapping == mappings_.end()) return false;
    at += mapping->second.bytes;
  }
  return bytes != 0 && at == address + bytes;
}

CUresult DeviceMemory::Map(CUdeviceptr address, uint64_t bytes,
                           CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  const auto range = RangeOf(address, bytes);
  if (found == handles_.end() || range == ranges_.end() || !IsMultiple(bytes) ||
      address % kGranularityBytes != 0 || bytes > found->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = mappings_.lower_bound(address);
  const bool overlaps_next = next != mappings_.end() && next->first < address + bytes;
  const bool overlaps_previous =
      next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (overlaps_next || overlaps_previous) return CUDA_ERROR_INVALID_VALUE;
  const int fd = fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
  std::byte* const mirror = range->second.mirror + (address - range->first);
  if (fd < 0 || mmap(mirror, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  madvise(mirror, bytes, MADV_DONTFORK);
  mappings_[address] = {bytes, fd, Access::kNone};
  return CUDA_SUCCESS;
}

void DeviceMemory::Remove(Mappings::iterator mapping) {
  const auto range = RangeOf(mapping->first, mapping->second.bytes);
  Forget(range->second.mirror + (mapping->first - range->first), mapping->second.bytes);
  close(mapping->second.fd);
  mappings_.erase(mapping);
}

CUresult DeviceMemory::Unmap(CUdeviceptr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!CoversWhole(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (auto mapping = mappings_.find(address);
       mapping != mappings_.end() && mapping->first < address + bytes;) {
    Remove(mapping++);
  }
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::SetAccess(CUdeviceptr address, uint64_t bytes, Access access) {
  const std::lock_guard lock(mutex_);
  if (!CoversWhole(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto range = RangeOf(address, bytes);
  if (range == ranges_.end()) return CUDA_ERROR_INVALID_VALUE;
  mprotect(range->second.mirror + (address - range->first), bytes, ProtectionOf(access));
  for (auto mapping = mappings_.find(address);
       mapping != mappings_.end() && mapping->first < address + bytes; ++mapping) {
    mapping->second.access = access;
  }
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::Allocate(int device, uint64_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t rounded = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t reserved =
      (rounded + kGranularityBytes - 1) / kGranularityBytes * kGranularityBytes;
  const int fd = MakeMemory(device, rounded);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  if (const CUresult result = Reserve(reserved, 0, address); result != CUDA_SUCCESS) {
    close(fd);
    return result;
  }
  Range& range = ranges_[*address];
  range.plain = true;
  if (mmap(range.mirror, rounded, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    close(fd);
    FreeReserved(*address, reserved);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  mappings_[*address] = {rounded, fd, Access::kReadWrite};
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::Free(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  if (address == 0) return CUDA_SUCCESS;
  const auto range = ranges_.find(address);
  if (range == ranges_.end() || !range->second.plain) return CUDA_ERROR_INVALID_VALUE;
  Remove(mappings_.find(address));
  return FreeReserved(address, range->second.bytes);
}

bool DeviceMemory::IsMapped(CUdeviceptr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return Covering(address, bytes) != mappings_.end();
}

std::byte* DeviceMemory::Mirror(CUdeviceptr address, uint64_t bytes, Access access) {
  const std::lock_guard lock(mutex_);
  auto mapping = Covering(address, bytes);
  if (mapping == mappings_.end()) return nullptr;
  const auto range = RangeOf(address, bytes);
  if (range == ranges_.end()) return nullptr;
  for (; mapping != mappings_.end() && mapping->first < address + bytes; ++mapping) {
    if (mapping->second.access < access) return nullptr;
  }
  return range->second.mirror + (address - range->first);
}

bool DeviceMemory::IsReserved(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  return RangeOf(address, 0) != ranges_.end();
}

uint64_t DeviceMemory::Translate(uint64_t word) {
  const std::lock_guard lock(mutex_);
  const auto range = RangeOf(word, 0);
  if (range == ranges_.end()) return word;
  return reinterpret_cast<uintptr_t>(range->second.mirror) + (word - range->first);
}

HostMemory& HostMemory::Get() {
  static auto* const memory = new HostMemory;
  return *memory;
}

CUresult HostMemory::Allocate(uint64_t bytes, void** data) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  pinned_[reinterpret_cast<uintptr_t>(*data)] = {bytes, true};
  return CUDA_SUCCESS;
}

CUresult HostMemory::Free(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(reinterpret_cast<uintptr_t>(data));
  if (found == pinned_.end() || !found->second.own) return CUDA_ERROR_INVALID_VALUE;
  munmap(data, found->second.bytes);
  pinned_.erase(found);
  return CUDA_SUCCESS;
}

CUresult HostMemory::Register(void* data, uint64_t bytes) {
  if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t page = begin / kPageBytes * kPageBytes;
  const uint64_t pages = (begin + bytes - page + kPageBytes - 1) / kPageBytes;
  const std::string resident(pages, '\0');
  if (mincore(reinterpret_cast<void*>(page), pages * kPageBytes,
              reinterpret_cast<unsigned char*>(const_cast<char*>(resident.data()))) != 0) {
    return CUDA_ERROR_INVALID_VALUE;  // part of it is no mapped memory
  }
  const std::lock_guard lock(mutex_);
  const auto next = pinned_.lower_bound(begin);
  const bool overlaps_next = next != pinned_.end() && next->first < begin + bytes;
  const bool overlaps_previous =
      next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin;
  if (overlaps_next || overlaps_previous) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  pinned_[begin] = {bytes, false};
  return CUDA_SUCCESS;
}

CUresult HostMemory::Unregister(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(reinterpret_cast<uintptr_t>(data));
  if (found == pinned_.end() || found->second.own) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  pinned_.erase(found);
  return CUDA_SUCCESS;
}

bool HostMemory::IsPinned(const void* data, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  uintptr_t at = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = at + bytes;
  auto pinned = pinned_.upper_bound(at);
  if (pinned == pinned_.begin()) return false;
  for (--pinned; pinned != pinned_.end() && pinned->first <= at; ++pinned) {
    if (pinned->first + pinned->second.bytes <= at) return false;
    at = pinned->first + pinned->second.bytes;
    if (at >= end) return true;
  }
  return false;
}

}  // namespace geminid::gpu_double
