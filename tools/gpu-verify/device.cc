#include "tools/gpu-verify/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

namespace geminid::gpu_verify {
namespace {

constexpr uint64_t kBlockBytes = 2 << 20;

uint32_t BlockPattern(uint32_t seed, uint64_t block) {
  constexpr uint32_t kOdd = 2654435761;  // golden ratio: neighbours differ in most bits
  return (seed * 4099 + static_cast<uint32_t>(block) + 1) * kOdd;
}

}  // namespace

Gpu::Gpu(const gpu::DriverApi& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  Must(driver_.init(0), "cuInit");
  Must(driver_.device_get(&device_, ordinal), "cuDeviceGet");
}

void Gpu::MakeContext() {
  Must(driver_.primary_ctx_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  UseContext();
}

void Gpu::UseContext() const { Must(driver_.ctx_set_current(context_), "cuCtxSetCurrent"); }

std::string Gpu::ErrorName(CUresult result) const {
  const char* name = nullptr;
  if (driver_.get_error_name(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "error " + std::to_string(static_cast<unsigned>(result));
}

void Gpu::Must(CUresult result, const char* call) const {
  if (result != CUDA_SUCCESS) throw ProbeError(std::string(call) + ": " + ErrorName(result));
}

int Gpu::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  Must(driver_.device_get_attribute(&value, attribute, device_), "cuDeviceGetAttribute");
  return value;
}

uint64_t Gpu::FreeBytes() const {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  Must(driver_.mem_get_info(&free_bytes, &total_bytes), "cuMemGetInfo");
  return free_bytes;
}

CUmemAllocationProp Gpu::AllocationProperties() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  return properties;
}

uint64_t Gpu::Granularity() const {
  const CUmemAllocationProp properties = AllocationProperties();
  size_t bytes = 0;
  Must(
      driver_.mem_get_allocation_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "cuMemGetAllocationGranularity");
  return bytes;
}

Stream::Stream(const Gpu& gpu) : gpu_(gpu) {
  gpu_.Must(gpu_.api().stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}
Stream::~Stream() { gpu_.api().stream_destroy(stream_); }
void Stream::Synchronize() const {
  gpu_.Must(gpu_.api().stream_synchronize(stream_), "cuStreamSynchronize");
}
bool Stream::Idle() const {
  const CUresult result = gpu_.api().stream_query(stream_);
  if (result != CUDA_ERROR_NOT_READY) gpu_.Must(result, "cuStreamQuery");
  return result == CUDA_SUCCESS;
}

Event::Event(const Gpu& gpu) : gpu_(gpu) {
  gpu_.Must(gpu_.api().event_create(&event_, CU_EVENT_DEFAULT), "cuEventCreate");
}
Event::~Event() { gpu_.api().event_destroy(event_); }
void Event::Record(const Stream& stream) const {
  gpu_.Must(gpu_.api().event_record(event_, stream.get()), "cuEventRecord");
}
void Event::Wait() const { gpu_.Must(gpu_.api().event_synchronize(event_), "cuEventSynchronize"); }

Buffer::Buffer(const Gpu& gpu, uint64_t bytes) : gpu_(gpu), bytes_(bytes) {
  gpu_.Must(gpu_.api().mem_alloc(&address_, bytes), "cuMemAlloc");
}
Buffer::~Buffer() { gpu_.api().mem_free(address_); }

Slab Slab::Create(const Gpu& gpu, uint64_t bytes) {
  Slab slab(gpu, bytes);
  const CUmemAllocationProp properties = gpu.AllocationProperties();
  gpu.Must(gpu.api().mem_create(&slab.handle_, bytes, &properties, 0), "cuMemCreate");
  slab.owned_ = true;
  return slab;
}

Slab Slab::Import(const Gpu& gpu, int fd, uint64_t bytes) {
  Slab slab(gpu, bytes);
  // The driver takes the descriptor's number instead of a pointer, and does not close it.
  void* const number = reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
  gpu.Must(gpu.api().mem_import(&slab.handle_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
           "cuMemImportFromShareableHandle");
  slab.owned_ = true;
  return slab;
}

Slab::Slab(Slab&& other) noexcept
    : gpu_(other.gpu_),
      bytes_(other.bytes_),
      handle_(other.handle_),
      owned_(std::exchange(other.owned_, false)),
      address_(std::exchange(other.address_, 0)),
      mapped_(std::exchange(other.mapped_, false)) {}

Slab::~Slab() {
  const gpu::DriverApi& api = gpu_->api();
  if (mapped_) api.mem_unmap(address_, bytes_);
  if (address_ != 0) api.mem_address_free(address_, bytes_);
  if (owned_) api.mem_release(handle_);
}

base::UniqueFd Slab::Export() const {
  int fd = -1;
  gpu_->Must(gpu_->api().mem_export(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             "cuMemExportToShareableHandle");
  return base::UniqueFd(fd);
}

void Slab::Reserve() {
  gpu_->Must(gpu_->api().mem_address_reserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve");
}
void Slab::MapReserved() {
  gpu_->Must(gpu_->api().mem_map(address_, bytes_, 0, handle_, 0), "cuMemMap");
  mapped_ = true;
}
void Slab::SetAccess(CUmemAccess_flags access) {
  CUmemAccessDesc description{};
  description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  description.location.id = gpu_->device();
  description.flags = access;
  gpu_->Must(gpu_->api().mem_set_access(address_, bytes_, &description, 1), "cuMemSetAccess");
}
void Slab::Map(CUmemAccess_flags access) {
  Reserve();
  MapReserved();
  SetAccess(access);
}
void Slab::Unmap() {
  mapped_ = false;
  gpu_->Must(gpu_->api().mem_unmap(address_, bytes_), "cuMemUnmap");
  const CUdeviceptr address = std::exchange(address_, 0);
  gpu_->Must(gpu_->api().mem_address_free(address, bytes_), "cuMemAddressFree");
}
void Slab::Release() {
  owned_ = false;
  gpu_->Must(gpu_->api().mem_release(handle_), "cuMemRelease");
}

void Fill(const Gpu& gpu, CUdeviceptr address, uint64_t bytes, uint32_t seed) {
  const Stream stream(gpu);
  for (uint64_t at = 0; at < bytes; at += kBlockBytes) {
    const uint64_t words = std::min(kBlockBytes, bytes - at) / sizeof(uint32_t);
    gpu.Must(gpu.api().memset_d32_async(address + at, BlockPattern(seed, at / kBlockBytes), words,
                                        stream.get()),
             "cuMemsetD32Async");
  }
  stream.Synchronize();
}

uint64_t CountMismatches(const Gpu& gpu, CUdeviceptr address, uint64_t bytes, uint32_t seed) {
  const Stream stream(gpu);
  std::vector<uint32_t> block(kBlockBytes / sizeof(uint32_t));
  uint64_t mismatches = 0;
  for (uint64_t at = 0; at < bytes; at += kBlockBytes) {
    const uint64_t size = std::min(kBlockBytes, bytes - at);
    gpu.Must(gpu.api().memcpy_dtoh_async(block.data(), address + at, size, stream.get()),
             "cuMemcpyDtoHAsync");
    stream.Synchronize();
    const uint32_t expected = BlockPattern(seed, at / kBlockBytes);
    for (uint64_t i = 0; i < size / sizeof(uint32_t); ++i) mismatches += block[i] != expected;
  }
  return mismatches;
}

HostPool::HostPool(uint64_t bytes, Pages pages) : bytes_(bytes) {
  const unsigned huge = pages == Pages::kHuge ? MFD_HUGETLB : 0;
  fd_ = base::UniqueFd(memfd_create("geminid-gpu-verify", MFD_CLOEXEC | huge));
  if (!fd_.valid() || ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    throw ProbeError(std::string("memfd of ") + std::to_string(bytes) +
                     " bytes: " + std::strerror(errno));
  }
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), 0);
  if (data == MAP_FAILED) throw ProbeError(std::string("mmap: ") + std::strerror(errno));
  data_ = static_cast<char*>(data);
  std::memset(data_, 0, bytes);
}

void HostPool::Unmap() {
  if (data_ != nullptr) munmap(std::exchange(data_, nullptr), bytes_);
}

HostPool::~HostPool() { Unmap(); }

uint64_t HostPool::FreeHugeBytes() {
  std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  uint64_t pages = 0;
  file >> pages;
  return file ? pages * kBlockBytes : 0;
}

Registration::Registration(const Gpu& gpu, void* data, uint64_t bytes) : gpu_(&gpu), data_(data) {
  gpu.Must(gpu.api().mem_host_register(data, bytes,
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
           "cuMemHostRegister");
}
Registration::Registration(Registration&& other) noexcept
    : gpu_(other.gpu_), data_(std::exchange(other.data_, nullptr)) {}
Registration::~Registration() {
  if (data_ != nullptr) gpu_->api().mem_host_unregister(data_);
}

CUdeviceptr Registration::DeviceAddress(const void* place) const {
  CUdeviceptr address = 0;
  gpu_->Must(gpu_->api().mem_host_get_device_pointer(&address, const_cast<void*>(place), 0),
             "cuMemHostGetDevicePointer");
  return address;
}

Observer::Observer(const gpu::DriverApi& driver, int ordinal)
    : role_(Role::Start("observer", [&driver, ordinal](Channel& channel) {
        Gpu gpu(driver, ordinal);
        gpu.MakeContext();
        channel.Send("ready");
        while (true) {
          channel.Receive();
          channel.Send(std::to_string(gpu.FreeBytes()));
        }
      })) {
  role_.channel().Receive();
  // Memory of processes that ended just before may still be returning.
  constexpr int kMostLooks = 60;
  constexpr double kLookSeconds = 0.05;
  uint64_t last = FreeBytes();
  for (int look = 0; look < kMostLooks; ++look) {
    Pause(kLookSeconds);
    if (FreeBytes() == last) break;
    last = FreeBytes();
  }
}

uint64_t Observer::FreeBytes() const {
  role_.channel().Send("free?");
  return std::stoull(role_.channel().Receive().text);
}

uint64_t Observer::AwaitFreeBytes(uint64_t bytes, double timeout_seconds) const {
  const double deadline = Now() + timeout_seconds;
  while (true) {
    const uint64_t free_bytes = FreeBytes();
    if (free_bytes >= bytes || Now() >= deadline) return free_bytes;
    Pause(0.001);
  }
}

}  // namespace geminid::gpu_verify
