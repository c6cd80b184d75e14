#include "tools/trainer/device_check.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {

absl::Status CheckDevice(const DeviceDescription& device, bool wants_gpu, int ranks) {
  const bool is_gpu = device.kind == DeviceKind::kCuda;
  const std::string which =
      absl::StrCat("device ", static_cast<uint32_t>(device.index), ", ", device.name);
  if (wants_gpu && !is_gpu) {
    return absl::FailedPreconditionError(
        absl::StrCat("--device cuda asks for a GPU, but the daemon gave this rank ", which,
                     "; give --device the number of a GPU that `geminictl status` shows, or "
                     "leave --socket and GEMINID_SOCKET out, so that this run starts a daemon with "
                     "the machine's GPUs"));
  }
  if (is_gpu && ranks > 1) {
    return absl::UnimplementedError(absl::StrCat(
        which,
        ", is a GPU, and geminid-train exchanges what its ranks have through host memory, "
        "which cannot reach a GPU's; train with one rank, or choose a host device (--device)"));
  }
  return absl::OkStatus();
}

}  // namespace geminid::trainer
