#include "gpu/driver.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace geminid::gpu {
namespace {

struct Meaning {
  absl::StatusCode code;
  const char* advice;
};

Meaning MeaningOf(CUresult result) {
  using absl::StatusCode;
  if (IsSticky(result)) {
    return {StatusCode::kDataLoss, kLostAdvice};
  }
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return {StatusCode::kResourceExhausted, "ask for less, or end what holds device memory"};
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return {StatusCode::kResourceExhausted, "launch fewer threads, or with less shared memory"};
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
      return {StatusCode::kInvalidArgument, "the call's arguments do not fit this device"};
    case CUDA_ERROR_NO_DEVICE:
      return {StatusCode::kUnavailable,
              "see nvidia-smi -L, CUDA_VISIBLE_DEVICES and the permissions of /dev/nvidia*"};
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return {
          StatusCode::kUnavailable,
          "another process uses the device exclusively, or the device's services have not started"};
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return {StatusCode::kUnavailable,
              "the CUDA library and the kernel's driver differ in version: install both from one "
              "release"};
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
      return {StatusCode::kFailedPrecondition,
              "CUDA does not work in a child forked after it was initialised: start a new program"};
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return {StatusCode::kUnimplemented,
              "the program has no code for this GPU: build the program for the GPU's architecture"};
    case CUDA_ERROR_NOT_SUPPORTED:
      return {StatusCode::kUnimplemented, "this device or driver does not support the call"};
    case CUDA_ERROR_NOT_PERMITTED:
      return {StatusCode::kPermissionDenied, "the system does not permit the call"};
    default:
      return {StatusCode::kInternal, "see the kernel's log (dmesg) and nvidia-smi"};
  }
}

absl::StatusOr<const NvmlApi*> LoadNvmlOnce() {
  static NvmlApi api;
  std::string error;
  if (!LoadNvmlApi(&api, &error)) return absl::UnavailableError(error);
  const absl::Status status = ToStatus(api, api.init(), "nvmlInit");
  if (!status.ok()) return absl::UnavailableError(status.message());
  return &api;
}

absl::StatusCode CodeOf(NvmlResult result) {
  switch (result) {
    case NvmlResult::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case NvmlResult::kNotSupported:
      return absl::StatusCode::kUnimplemented;
    case NvmlResult::kNoPermission:
      return absl::StatusCode::kPermissionDenied;
    case NvmlResult::kNotFound:
      return absl::StatusCode::kNotFound;
    case NvmlResult::kDriverNotLoaded:
      return absl::StatusCode::kUnavailable;
    case NvmlResult::kTimeout:
      return absl::StatusCode::kDeadlineExceeded;
    case NvmlResult::kGpuIsLost:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:  // what a device that fell off the bus answers
      return true;
    default:
      return false;
  }
}

absl::StatusOr<const DriverApi*> LoadDriver() {
  std::string error;
  const DriverApi* const api = ProcessDriver(&error);
  if (api == nullptr) return absl::UnavailableError(error);
  return api;
}

absl::Status ToStatus(const DriverApi& api, CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const Meaning meaning = MeaningOf(result);
  return {meaning.code,
          absl::StrCat(std::string(call), ": ", DescribeError(api, result), "; ", meaning.advice)};
}

absl::StatusOr<const NvmlApi*> LoadNvml() {
  static const absl::StatusOr<const NvmlApi*> api = LoadNvmlOnce();
  return api;
}

absl::Status ToStatus(const NvmlApi& api, NvmlResult result, std::string_view call) {
  if (result == NvmlResult::kSuccess) return absl::OkStatus();
  const char* const text = api.error_string(result);
  return {CodeOf(result),
          absl::StrCat(std::string(call), ": ", text == nullptr ? "unknown error" : text, " (",
                       static_cast<int>(result), "); nvidia-smi says more")};
}

}  // namespace geminid::gpu
