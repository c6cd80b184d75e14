// How errors of the driver become absl::Status, and what a machine without a driver reports.
#include "gpu/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv

#include <string>
#include <utility>

namespace geminid::gpu {
namespace {

using ::testing::HasSubstr;

DriverApi TableWithWords() {
  DriverApi api;
  api.get_error_name = [](CUresult result, const char** name) {
    *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  api.get_error_string = [](CUresult, const char** text) {
    *text = "out of memory";
    return CUDA_SUCCESS;
  };
  return api;
}

TEST(DriverStatus, Error_SaysCallNameMeaningAndWhatToDo) {
  const absl::Status status = ToStatus(TableWithWords(), CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(std::string(status.message()),
            "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory); ask for less, or end what "
            "holds device memory");
}

TEST(DriverStatus, Success_IsOk) {
  EXPECT_TRUE(ToStatus(TableWithWords(), CUDA_SUCCESS, "cuInit").ok());
}

TEST(DriverStatus, ErrorThatTheDriverDoesNotKnow_KeepsItsNumber) {
  const absl::Status status = ToStatus(TableWithWords(), static_cast<CUresult>(12345), "cuInit");
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("12345"));
}

TEST(DriverStatus, EveryKindOfError_HasItsCode) {
  const std::pair<CUresult, absl::StatusCode> kinds[] = {
      {CUDA_ERROR_INVALID_VALUE, absl::StatusCode::kInvalidArgument},
      {CUDA_ERROR_NOT_SUPPORTED, absl::StatusCode::kUnimplemented},
      {CUDA_ERROR_NOT_PERMITTED, absl::StatusCode::kPermissionDenied},
      {CUDA_ERROR_NO_DEVICE, absl::StatusCode::kUnavailable},
      {CUDA_ERROR_NOT_INITIALIZED, absl::StatusCode::kFailedPrecondition},
      {CUDA_ERROR_ILLEGAL_ADDRESS, absl::StatusCode::kDataLoss},
      {CUDA_ERROR_UNKNOWN, absl::StatusCode::kDataLoss},
      {CUDA_ERROR_TIMEOUT, absl::StatusCode::kInternal},
  };
  for (const auto& [result, code] : kinds) {
    EXPECT_EQ(ToStatus(TableWithWords(), result, "cuX").code(), code) << result;
    EXPECT_EQ(IsSticky(result), code == absl::StatusCode::kDataLoss) << result;
  }
}

TEST(DriverTable, LibraryThatIsNotThere_IsNamed) {
  setenv(kDriverPathVariable, "/nowhere/libcuda.so.1", 1);
  setenv(kNvmlPathVariable, "/nowhere/libnvidia-ml.so.1", 1);
  DriverApi api;
  NvmlApi nvml;
  std::string error;
  EXPECT_FALSE(LoadDriverApi(&api, &error));
  EXPECT_THAT(error, HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_FALSE(LoadNvmlApi(&nvml, &error));
  EXPECT_THAT(error, HasSubstr("/nowhere/libnvidia-ml.so.1"));
  EXPECT_TRUE(absl::IsUnavailable(LoadDriver().status()));
  EXPECT_TRUE(absl::IsUnavailable(LoadNvml().status()));
  unsetenv(kDriverPathVariable);
  unsetenv(kNvmlPathVariable);
}

TEST(DriverTable, LibraryThatIsNoDriver_IsRefused) {
  setenv(kDriverPathVariable, "libm.so.6", 1);
  setenv(kNvmlPathVariable, "libm.so.6", 1);
  DriverApi api;
  NvmlApi nvml;
  std::string error;
  EXPECT_FALSE(LoadDriverApi(&api, &error));
  EXPECT_THAT(error, HasSubstr("older than R525"));
  EXPECT_FALSE(LoadNvmlApi(&nvml, &error));
  EXPECT_THAT(error, HasSubstr("nvmlInit_v2"));
  unsetenv(kDriverPathVariable);
  unsetenv(kNvmlPathVariable);
}

}  // namespace
}  // namespace geminid::gpu
