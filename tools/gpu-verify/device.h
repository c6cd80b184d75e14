// One GPU as a probe's process sees it: owning handles over the driver's table. Every call that
// fails throws ProbeError with the names of the call and of the error. Handles belong to one thread
// or, with the context made current there too, to the threads of one process. They must not outlive
// their Gpu.
#ifndef GEMINID_TOOLS_GPU_VERIFY_DEVICE_H_
#define GEMINID_TOOLS_GPU_VERIFY_DEVICE_H_

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "gpu/driver_api.h"
#include "tools/gpu-verify/process.h"

namespace geminid::gpu_verify {

class Gpu {
 public:
  // Calls cuInit; makes no context. Once per process.
  Gpu(const gpu::DriverApi& driver, int ordinal);
  // Makes the primary context and makes it current in this thread.
  void MakeContext();
  // Makes the context current in another thread.
  void UseContext() const;

  const gpu::DriverApi& api() const { return driver_; }
  int ordinal() const { return ordinal_; }
  CUdevice device() const { return device_; }
  void Must(CUresult result, const char* call) const;
  std::string ErrorName(CUresult result) const;
  int Attribute(CUdevice_attribute attribute) const;
  uint64_t FreeBytes() const;  // of the whole device, all processes; needs the context
  uint64_t Granularity() const;
  CUmemAllocationProp AllocationProperties() const;

 private:
  const gpu::DriverApi& driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

class Stream {
 public:
  explicit Stream(const Gpu& gpu);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  CUstream get() const { return stream_; }
  void Synchronize() const;
  bool Idle() const;

 private:
  const Gpu& gpu_;
  CUstream stream_ = nullptr;
};

class Event {
 public:
  explicit Event(const Gpu& gpu);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  void Record(const Stream& stream) const;
  void Wait() const;

 private:
  const Gpu& gpu_;
  CUevent event_ = nullptr;
};

// Device memory of this process alone.
class Buffer {
 public:
  Buffer(const Gpu& gpu, uint64_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const Gpu& gpu_;
  CUdeviceptr address_ = 0;
  uint64_t bytes_;
};

// Device memory that can be exported: a handle, and perhaps a mapping of it.
class Slab {
 public:
  // `bytes` a multiple of the granularity.
  static Slab Create(const Gpu& gpu, uint64_t bytes);
  static Slab Import(const Gpu& gpu, int fd, uint64_t bytes);
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&&) = delete;
  ~Slab();

  base::UniqueFd Export() const;
  void Reserve();
  void MapReserved();
  void SetAccess(CUmemAccess_flags access);
  void Map(CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);  // the three above
  void Unmap();
  void Release();
  CUmemGenericAllocationHandle handle() const { return handle_; }
  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Slab(const Gpu& gpu, uint64_t bytes) : gpu_(&gpu), bytes_(bytes) {}

  const Gpu* gpu_;
  uint64_t bytes_;
  CUmemGenericAllocationHandle handle_ = 0;
  bool owned_ = false;
  CUdeviceptr address_ = 0;  // reserved range
  bool mapped_ = false;
};

// Fills memory with a pattern that differs for every seed and every 2 MiB block.
void Fill(const Gpu& gpu, CUdeviceptr address, uint64_t bytes, uint32_t seed);
// The number of 32-bit words that differ from that pattern, counted on the host.
uint64_t CountMismatches(const Gpu& gpu, CUdeviceptr address, uint64_t bytes, uint32_t seed);

// Host memory in a memfd, populated, mapped here and in processes that are forked later.
class HostPool {
 public:
  enum class Pages { kSmall, kHuge };
  explicit HostPool(uint64_t bytes, Pages pages = Pages::kSmall);
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
  ~HostPool();
  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Closes this process's descriptor, but keeps the mapping.
  void CloseDescriptor() { fd_.Reset(); }
  void Unmap();
  static uint64_t FreeHugeBytes();  // reserved and unused 2 MiB pages

 private:
  base::UniqueFd fd_;
  char* data_ = nullptr;
  uint64_t bytes_;
};

// Host memory registered with the driver of this process.
class Registration {
 public:
  Registration(const Gpu& gpu, void* data, uint64_t bytes);
  Registration(Registration&& other) noexcept;
  Registration& operator=(Registration&&) = delete;
  ~Registration();
  // The GPU's address of `place`, which lies within the registered memory.
  CUdeviceptr DeviceAddress(const void* place) const;

 private:
  const Gpu* gpu_;
  void* data_;
};

// A process with a context that only reports how much device memory is free. It also keeps the GPU
// initialised.
class Observer {
 public:
  Observer(const gpu::DriverApi& driver, int ordinal);
  uint64_t FreeBytes() const;
  // Asks until at least `bytes` are free or the timeout passes; returns the last answer.
  uint64_t AwaitFreeBytes(uint64_t bytes, double timeout_seconds) const;

 private:
  Role role_;
};

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_DEVICE_H_
