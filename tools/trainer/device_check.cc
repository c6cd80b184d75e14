#include "tools/trainer/device_check.h"

#include "absl/strings/str_cat.h"

namespace geminid::trainer {

absl::Status CheckDevice(const DeviceDescription& device) {
  if (device.kind != DeviceKind::kCuda) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "device ", static_cast<uint32_t>(device.index), ", ", device.name,
      ", is a GPU, and geminid-train computes on the host, which cannot reach a GPU's memory; give "
      "the daemon a host device as well, such as --device cuda:0,host:1=16GiB, and choose it with "
      "geminid-train --device 1"));
}

}  // namespace geminid::trainer
