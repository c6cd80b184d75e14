#include "client/device/cuda/cuda_context.h"

#include <algorithm>
#include <bit>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::device {
namespace {

using gpu::DriverApi;
using gpu::ToStatus;

constexpr uint64_t kWordsOfAPage = 512;
constexpr uint64_t kLeastStagingBytes = 64 << 10;

// The hexadecimal digits of a UUID.
std::string DigitsOf(const CUuuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (const char byte : uuid.bytes) {
    const auto value = static_cast<unsigned char>(byte);
    digits += kDigits[value >> 4];
    digits += kDigits[value & 15];
  }
  return digits;
}

std::string_view WithoutPrefix(std::string_view uuid) {
  for (const std::string_view prefix : {"GPU-", "MIG-"}) {
    if (uuid.starts_with(prefix)) uuid.remove_prefix(prefix.size());
  }
  return uuid;
}

std::string DigitsOf(std::string_view uuid) {
  std::string digits;
  for (const char c : WithoutPrefix(uuid)) {
    if (c != '-') digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return digits;
}

absl::StatusOr<CUdevice> FindDevice(const DriverApi& api, const std::string& uuid) {
  int count = 0;
  GEMINID_RETURN_IF_ERROR(ToStatus(api, api.device_get_count(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUuuid found{};
    GEMINID_RETURN_IF_ERROR(ToStatus(api, api.device_get(&device, ordinal), "cuDeviceGet"));
    GEMINID_RETURN_IF_ERROR(ToStatus(api, api.device_get_uuid(&found, device), "cuDeviceGetUuid"));
    if (uuid.empty() || DigitsOf(found) == DigitsOf(uuid)) return device;
  }
  return absl::NotFoundError(absl::StrCat(
      "this process sees ", count, " GPU(s), and ", uuid,
      " is none of them; see CUDA_VISIBLE_DEVICES and nvidia-smi -L. If it is a MIG instance, "
      "start the process with CUDA_VISIBLE_DEVICES=MIG-",
      std::string(WithoutPrefix(uuid)), ": the process then sees that instance alone"));
}

absl::Status CheckAbilities(const DriverApi& api, CUdevice device) {
  struct Ability {
    CUdevice_attribute attribute;
    const char* name;
  };
  const Ability needed[] = {
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
       "memory as file descriptors"},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, "64-bit memory operations of streams"}};
  for (const Ability& ability : needed) {
    int supported = 0;
    GEMINID_RETURN_IF_ERROR(
        ToStatus(api, api.device_get_attribute(&supported, ability.attribute, device),
                 "cuDeviceGetAttribute"));
    if (supported != 0) continue;
    return absl::UnimplementedError(
        absl::StrCat("the GPU or its driver lacks ", ability.name,
                     "; use a newer driver, or the host device (docs/configuration.md)"));
  }
  return absl::OkStatus();
}

}  // namespace

CudaContext::Current::Current(const CudaContext& context)
    : api_(context.api()),
      pushed_(context.api().ctx_push_current(context.context_) == CUDA_SUCCESS) {}

CudaContext::Current::~Current() {
  CUcontext popped = nullptr;
  if (pushed_) api_.ctx_pop_current(&popped);
}

absl::StatusOr<std::shared_ptr<CudaContext>> CudaContext::Create(const std::string& uuid) {
  const gpu::DriverCall call;
  GEMINID_ASSIGN_OR_RETURN(const DriverApi* const api, gpu::LoadDriver());
  GEMINID_ASSIGN_OR_RETURN(const CUdevice device, FindDevice(*api, uuid));
  GEMINID_RETURN_IF_ERROR(CheckAbilities(*api, device));
  CUcontext context = nullptr;
  GEMINID_RETURN_IF_ERROR(
      ToStatus(*api, api->primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  return std::shared_ptr<CudaContext>(new CudaContext(api, device, context));
}

CudaContext::~CudaContext() {
  {
    const Scope scope(*this);
    for (CUevent event : events_) api_->event_destroy(event);
    for (void* memory : host_memory_) api_->mem_free_host(memory);
  }
  api_->primary_ctx_release(device_);
}

absl::Status CudaContext::Check(CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  absl::Status status = ToStatus(*api_, result, call);
  if (gpu::IsSticky(result)) {
    Fail(status);
    lost_.store(true, std::memory_order_release);
  }
  return status;
}

void CudaContext::Fail(const absl::Status& status) {
  if (status.ok()) return;
  const std::lock_guard lock(mutex_);
  status_.Update(status);
}

absl::Status CudaContext::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool CudaContext::IsDeviceMemory(const void* place) const {
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  const CUresult result = api_->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                      reinterpret_cast<uintptr_t>(place));
  return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

absl::StatusOr<CUevent> CudaContext::TakeEvent() {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      CUevent event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  const Scope scope(*this);
  CUevent event = nullptr;
  GEMINID_RETURN_IF_ERROR(
      Check(api_->event_create(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  return event;
}

void CudaContext::ReturnEvent(CUevent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

bool CudaContext::IsReached(CUevent event) {
  const Scope scope(*this);
  const CUresult result = api_->event_query(event);
  if (result == CUDA_ERROR_NOT_READY) return lost();
  Fail(Check(result, "cuEventQuery"));
  return true;
}

absl::StatusOr<void*> CudaContext::AllocateHost(uint64_t bytes) {
  const Scope scope(*this);
  void* memory = nullptr;
  const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  GEMINID_RETURN_IF_ERROR(Check(api_->mem_host_alloc(&memory, bytes, flags), "cuMemHostAlloc"));
  const std::lock_guard lock(mutex_);
  host_memory_.push_back(memory);
  return memory;
}

absl::StatusOr<StreamWord> CudaContext::TakeWord() {
  {
    const std::lock_guard lock(mutex_);
    if (!words_.empty()) {
      const StreamWord word = words_.back();
      words_.pop_back();
      return word;
    }
  }
  GEMINID_ASSIGN_OR_RETURN(void* const page, AllocateHost(kWordsOfAPage * sizeof(uint64_t)));
  CUdeviceptr address = 0;
  {
    const Scope scope(*this);
    GEMINID_RETURN_IF_ERROR(
        Check(api_->mem_host_get_device_pointer(&address, page, 0), "cuMemHostGetDevicePointer"));
  }
  auto* const words = static_cast<std::atomic<uint64_t>*>(page);
  const std::lock_guard lock(mutex_);
  for (uint64_t i = 0; i < kWordsOfAPage; ++i) {
    words[i].store(0, std::memory_order_relaxed);
    if (i > 0) words_.push_back({&words[i], address + i * sizeof(uint64_t), 0});
  }
  return StreamWord{words, address, 0};
}

void CudaContext::ReturnWord(const StreamWord& word) {
  const std::lock_guard lock(mutex_);
  words_.push_back(word);
}

absl::StatusOr<std::byte*> CudaContext::TakeStaging(uint64_t bytes) {
  const uint64_t rounded = std::bit_ceil(std::max(bytes, kLeastStagingBytes));
  {
    const std::lock_guard lock(mutex_);
    const auto free = free_staging_.find(rounded);
    if (free != free_staging_.end()) {
      std::byte* const block = free->second;
      free_staging_.erase(free);
      return block;
    }
  }
  GEMINID_ASSIGN_OR_RETURN(void* const memory, AllocateHost(rounded));
  auto* const block = static_cast<std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  staging_bytes_[block] = rounded;
  return block;
}

void CudaContext::ReturnStaging(std::byte* block) {
  const std::lock_guard lock(mutex_);
  free_staging_.emplace(staging_bytes_.at(block), block);
}

}  // namespace geminid::device
