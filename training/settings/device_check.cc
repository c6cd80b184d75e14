#include "training/settings/device_check.h"

#include "absl/strings/str_cat.h"

namespace geminid::trainer {

absl::Status CheckDevice(const DeviceDescription& device, bool wants_gpu) {
  if (!wants_gpu || device.kind == DeviceKind::kCuda) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--device cuda asks for a GPU, but the daemon gave this rank device ",
      static_cast<uint32_t>(device.index), ", ", device.name,
      "; give --device the number of a GPU that `geminictl status` shows, or leave --socket and "
      "GEMINID_SOCKET out, so that this run starts a daemon with the machine's GPUs"));
}

}  // namespace geminid::trainer
