#include "client/device/cuda/cuda_arena.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::device {
namespace {

CUmemLocation LocationOf(const CudaContext& context) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = context.device();
  return location;
}

}  // namespace

absl::StatusOr<uint64_t> GranularityOf(CudaContext& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = LocationOf(context);
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(context.Check(context.api().mem_get_allocation_granularity(
                                            &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                        "cuMemGetAllocationGranularity"));
  return bytes;
}

CudaArena::CudaArena(std::shared_ptr<CudaContext> context, uint64_t granularity_bytes)
    : context_(std::move(context)), granularity_bytes_(granularity_bytes) {}

CudaArena::~CudaArena() {
  const CudaContext::Scope scope(*context_);
  // If this fails, the process's end releases the memory.
  if (Release().ok() && base_ != 0) context_->api().mem_address_free(base_, reserved_bytes_);
}

absl::Status CudaArena::Reserve(uint64_t bytes) {
  if (base_ != 0) return absl::FailedPreconditionError("the arena is reserved already");
  GEMINID_RETURN_IF_ERROR(CheckArena(bytes, granularity_bytes_));
  const CudaContext::Scope scope(*context_);
  GEMINID_RETURN_IF_ERROR(context_->Check(
      context_->api().mem_address_reserve(&base_, bytes, 0, 0, 0), "cuMemAddressReserve"));
  reserved_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status CudaArena::Map(CUmemGenericAllocationHandle handle, CUdeviceptr address,
                            uint64_t bytes) {
  const gpu::DriverApi& api = context_->api();
  GEMINID_RETURN_IF_ERROR(context_->Check(api.mem_map(address, bytes, 0, handle, 0), "cuMemMap"));
  CUmemAccessDesc access{};
  access.location = LocationOf(*context_);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  absl::Status status =
      context_->Check(api.mem_set_access(address, bytes, &access, 1), "cuMemSetAccess");
  if (!status.ok()) api.mem_unmap(address, bytes);
  return status;
}

absl::Status CudaArena::Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes) {
  GEMINID_RETURN_IF_ERROR(CheckSlab(slabs_, reserved_bytes_, granularity_bytes_, offset, bytes));
  const CudaContext::Scope scope(*context_);
  const gpu::DriverApi& api = context_->api();
  CUmemGenericAllocationHandle handle = 0;
  // The driver takes the descriptor as if it were a pointer, and does not close it.
  void* const number = reinterpret_cast<void*>(static_cast<uintptr_t>(slab.get()));
  const absl::Status imported =
      context_->Check(api.mem_import(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                      "cuMemImportFromShareableHandle");
  if (!imported.ok() && !context_->lost()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slab is not memory of this GPU: ", imported.message()));
  }
  GEMINID_RETURN_IF_ERROR(imported);
  const absl::Status mapped = Map(handle, base_ + offset, bytes);
  api.mem_release(handle);  // the mapping keeps the memory
  GEMINID_RETURN_IF_ERROR(mapped);
  slabs_[offset] = bytes;
  imported_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status CudaArena::Release() {
  const CudaContext::Scope scope(*context_);
  for (; !slabs_.empty(); slabs_.erase(slabs_.begin())) {
    const auto [offset, bytes] = *slabs_.begin();
    GEMINID_RETURN_IF_ERROR(
        context_->Check(context_->api().mem_unmap(base_ + offset, bytes), "cuMemUnmap"));
    imported_bytes_ -= bytes;
  }
  return absl::OkStatus();
}

}  // namespace geminid::device
