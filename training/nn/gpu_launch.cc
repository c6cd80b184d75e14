#include "training/nn/gpu_launch.h"

#include "absl/strings/str_cat.h"
#include "gpu/driver.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/cuda/launcher.h"
#include "kernels/runtime/cuda/refusal.h"

namespace geminid::trainer {

absl::Status Launched(kernels::Status status, const char* kernel) {
  if (status != kernels::Status::kUnsupported) return kernels::FromKernel(status, kernel);
  const bool lost = gpu::IsSticky(static_cast<CUresult>(kernels::cuda::LastRefusalCode()));
  return {lost ? absl::StatusCode::kDataLoss : absl::StatusCode::kUnavailable,
          absl::StrCat("the GPU refused the kernel ", kernel, ": ", kernels::cuda::LastRefusal(),
                       lost ? "; " : "", lost ? gpu::kLostAdvice : "")};
}

}  // namespace geminid::trainer
