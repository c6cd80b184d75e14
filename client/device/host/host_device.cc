#include "client/device/host/host_device.h"

#include "base/unique_fd.h"
#include "client/device/host/host_arena.h"
#include "client/device/host/host_stream.h"

namespace geminid::device {
namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(const LinkPacer& pacer)
      : to_device_("geminid-h2d", pacer),
        to_host_("geminid-d2h", pacer),
        compute_("geminid-compute", LinkPacer(0, 0)) {}

  std::string name() const override { return "host"; }

  absl::Status ReserveArena(uint64_t bytes) override { return arena_.Reserve(bytes); }
  absl::Status ImportSlab(base::UniqueFd slab, uint64_t offset, uint64_t bytes) override {
    return arena_.Import(slab, offset, bytes);
  }

  // memcpy takes any memory.
  absl::Status RegisterHost(std::span<std::byte> /*memory*/) override { return absl::OkStatus(); }
  void UnregisterHost(std::span<std::byte> /*memory*/) override {}

  std::byte* base() const override { return arena_.base(); }
  MemoryInfo memory_info() const override { return arena_.memory_info(); }

  CopyStream& copy_stream(Direction direction) override {
    return direction == Direction::kHostToDevice ? to_device_ : to_host_;
  }
  Stream& compute_stream() override { return compute_; }

 private:
  HostArena arena_;  // first: the streams, destroyed before it, finish their copies
  HostStream to_device_;
  HostStream to_host_;
  HostStream compute_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(
      LinkPacer(options.copy_bytes_per_second, options.copy_latency_seconds));
}

}  // namespace geminid::device
