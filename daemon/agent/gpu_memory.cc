#include "daemon/agent/gpu_memory.h"

#include <fcntl.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/agent/gpu_list.h"

namespace geminid::agent {

absl::StatusOr<GpuMemory> GpuMemory::Open(const std::string& uuid) {
  GEMINID_ASSIGN_OR_RETURN(const shm::Uuid wanted, ParseUuid(uuid));
  GEMINID_ASSIGN_OR_RETURN(const gpu::NvmlApi* nvml, gpu::LoadNvml());
  gpu::NvmlDevice nvml_device = nullptr;
  GEMINID_RETURN_IF_ERROR(gpu::ToStatus(*nvml,
                                        nvml->device_get_handle_by_uuid(uuid.c_str(), &nvml_device),
                                        "nvmlDeviceGetHandleByUUID"));
  GEMINID_ASSIGN_OR_RETURN(GpuFacts facts, ReadGpu(*nvml, nvml_device));
  GEMINID_ASSIGN_OR_RETURN(const gpu::DriverApi* driver, gpu::LoadDriver());
  CUdevice device = 0;
  GEMINID_RETURN_IF_ERROR(gpu::ToStatus(*driver, driver->device_get(&device, 0), "cuDeviceGet"));
  CUuuid found = {};
  GEMINID_RETURN_IF_ERROR(
      gpu::ToStatus(*driver, driver->device_get_uuid(&found, device), "cuDeviceGetUuid"));
  if (std::memcmp(&found, wanted.data(), wanted.size()) != 0) {
    return absl::NotFoundError(absl::StrCat("the driver's first device is not ", uuid,
                                            "; CUDA_VISIBLE_DEVICES must name it"));
  }
  GpuMemory memory(driver, nvml, nvml_device, device, facts);
  const CUmemAllocationProp properties = memory.Properties();
  size_t granularity = 0;
  GEMINID_RETURN_IF_ERROR(
      memory.Check(driver->mem_get_allocation_granularity(&granularity, &properties,
                                                          CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                   "cuMemGetAllocationGranularity"));
  memory.facts_.granularity_bytes = granularity;
  return memory;
}

absl::Status GpuMemory::Check(CUresult result, const char* call) const {
  return gpu::ToStatus(*driver_, result, call);
}

CUmemAllocationProp GpuMemory::Properties() const {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  return properties;
}

absl::StatusOr<CUmemGenericAllocationHandle> GpuMemory::MakeHandle(uint64_t bytes) {
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver_->mem_create(&handle, bytes, &properties, 0);
  if (result == CUDA_ERROR_INVALID_CONTEXT && !needs_context_) {
    // The context stays: a driver that needs one for this needs it for the rest as well.
    GEMINID_RETURN_IF_ERROR(EnterContext());
    needs_context_ = true;
    result = driver_->mem_create(&handle, bytes, &properties, 0);
  }
  absl::Status status = Check(result, "cuMemCreate");
  if (status.ok()) return handle;
  if (!absl::IsResourceExhausted(status)) return status;
  const absl::StatusOr<Health> health = ReadHealth();
  if (!health.ok()) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the GPU has no ", base::FormatBytes(bytes), " left: ", base::FormatBytes(health->free_bytes),
      " of ", base::FormatBytes(health->total_bytes), " are free, ",
      base::FormatBytes(health->slab_bytes),
      " are sessions'; the rest is of processes that geminid does not know (nvidia-smi), end them, "
      "or give the device less memory (--device)"));
}

absl::StatusOr<GpuMemory::CreatedSlab> GpuMemory::Create(uint64_t bytes) {
  if (bytes == 0 || bytes % facts_.granularity_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a slab of ", bytes, " bytes is not a multiple of ", facts_.granularity_bytes));
  }
  GEMINID_ASSIGN_OR_RETURN(const CUmemGenericAllocationHandle handle, MakeHandle(bytes));
  int number = -1;
  absl::Status exported =
      Check(driver_->mem_export(&number, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle");
  if (!exported.ok()) {
    (void)driver_->mem_release(handle);
    return exported;
  }
  CreatedSlab made = {.slab = next_slab_++, .fd = base::UniqueFd(number)};
  slabs_[made.slab] = {.handle = handle, .bytes = bytes};
  slab_bytes_ += bytes;
  return made;
}

absl::StatusOr<GpuMemory::Slab> GpuMemory::Find(uint64_t slab) const {
  const auto found = slabs_.find(slab);
  if (found != slabs_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("there is no slab ", slab));
}

absl::Status GpuMemory::EnterContext() {
  CUcontext context = nullptr;
  GEMINID_RETURN_IF_ERROR(
      Check(driver_->primary_ctx_retain(&context, device_), "cuDevicePrimaryCtxRetain"));
  const absl::Status status = Check(driver_->ctx_set_current(context), "cuCtxSetCurrent");
  if (!status.ok()) (void)driver_->primary_ctx_release(device_);
  return status;
}

void GpuMemory::LeaveContext() {
  (void)driver_->ctx_set_current(nullptr);
  (void)driver_->primary_ctx_release(device_);
}

absl::Status GpuMemory::Scrub(uint64_t slab) {
  GEMINID_ASSIGN_OR_RETURN(const Slab found, Find(slab));
  if (needs_context_) return WriteZeros(found);
  GEMINID_RETURN_IF_ERROR(EnterContext());
  const absl::Status status = WriteZeros(found);
  LeaveContext();
  return status;
}

absl::Status GpuMemory::WriteZeros(const Slab& slab) const {
  CUdeviceptr address = 0;
  GEMINID_RETURN_IF_ERROR(
      Check(driver_->mem_address_reserve(&address, slab.bytes, 0, 0, 0), "cuMemAddressReserve"));
  absl::Status status = Check(driver_->mem_map(address, slab.bytes, 0, slab.handle, 0), "cuMemMap");
  if (status.ok()) {
    CUmemAccessDesc access = {};
    access.location = Properties().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = Check(driver_->mem_set_access(address, slab.bytes, &access, 1), "cuMemSetAccess");
    if (status.ok()) {
      status = Check(driver_->memset_d8_async(address, 0, slab.bytes, nullptr), "cuMemsetD8Async");
    }
    if (status.ok()) status = Check(driver_->ctx_synchronize(), "cuCtxSynchronize");
    status.Update(Check(driver_->mem_unmap(address, slab.bytes), "cuMemUnmap"));
  }
  status.Update(Check(driver_->mem_address_free(address, slab.bytes), "cuMemAddressFree"));
  return status;
}

absl::Status GpuMemory::Release(uint64_t slab) {
  GEMINID_ASSIGN_OR_RETURN(const Slab found, Find(slab));
  GEMINID_RETURN_IF_ERROR(Check(driver_->mem_release(found.handle), "cuMemRelease"));
  slabs_.erase(slab);
  slab_bytes_ -= found.bytes;
  return absl::OkStatus();
}

absl::StatusOr<Health> GpuMemory::ReadHealth() const {
  gpu::NvmlMemory memory = {};
  GEMINID_RETURN_IF_ERROR(gpu::ToStatus(
      *nvml_, nvml_->device_get_memory_info(nvml_device_, &memory), "nvmlDeviceGetMemoryInfo"));
  return Health{.total_bytes = memory.total_bytes,
                .free_bytes = memory.free_bytes,
                .slabs = slabs_.size(),
                .slab_bytes = slab_bytes_,
                .has_context = needs_context_ ? 1U : 0U,
                .reserved = 0,
                .faults = {}};
}

}  // namespace geminid::agent
