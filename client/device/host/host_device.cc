#include "client/device/host/host_device.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "client/device/host/host_arena.h"
#include "client/device/host/host_ops.h"
#include "client/device/host/host_stream.h"
#include "client/device/host/inline_stream.h"

namespace geminid::device {
namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : arena_(options.strict),
        ops_(&arena_),
        to_device_("geminid-h2d", Pacer(options), &arena_),
        to_host_("geminid-d2h", Pacer(options), &arena_),
        compute_("geminid-compute", LinkPacer(0, 0), &arena_) {}

  std::string name() const override { return "host"; }

  absl::Status ReserveArena(uint64_t bytes) override {
    for (const HostStream* stream : {&to_device_, &to_host_, &compute_}) {
      GEMINID_RETURN_IF_ERROR(stream->status());
    }
    return arena_.Reserve(bytes);
  }
  absl::Status ImportSlab(base::UniqueFd slab, uint64_t offset, uint64_t bytes) override {
    return arena_.Import(slab, offset, bytes);
  }

  absl::Status ReleaseSlabs() override { return arena_.Release(); }
  absl::Status ReserveViews(uint64_t bytes) override { return arena_.ReserveViews(bytes); }
  void ReleaseViews() override { arena_.ReleaseViews(); }
  std::byte* views() const override { return arena_.views(); }
  absl::Status MapView(uint64_t at, uint64_t offset, uint64_t bytes) override {
    return arena_.MapView(at, offset, bytes);
  }
  absl::Status UnmapView(uint64_t at, uint64_t bytes) override {
    return arena_.UnmapView(at, bytes);
  }
  absl::Status FillView(uint64_t at, uint64_t bytes) override { return arena_.FillView(at, bytes); }

  // memcpy needs no registration.
  absl::Status RegisterHost(std::span<std::byte> /*memory*/) override { return absl::OkStatus(); }
  void UnregisterHost(std::span<std::byte> /*memory*/) override {}

  std::byte* base() const override { return arena_.base(); }
  MemoryInfo memory_info() const override { return arena_.memory_info(); }
  std::byte* HostAddress(std::byte* address) const override { return arena_.HostAddress(address); }

  CopyStream& copy_stream(Direction direction) override {
    return direction == Direction::kHostToDevice ? to_device_ : to_host_;
  }
  Stream& compute_stream() override { return compute_; }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name) override {
    auto stream = std::make_unique<HostStream>(name, LinkPacer(0, 0), &arena_);
    GEMINID_RETURN_IF_ERROR(stream->status());
    return stream;
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStreamOfCaller(const std::string&) override {
    return std::make_unique<InlineStream>();
  }
  // CUDA's streams 1 and 2 are no addresses.
  absl::StatusOr<Stream*> StreamOf(StreamHandle handle) override {
    const auto number = reinterpret_cast<uintptr_t>(handle.value);
    if (number == 0 || number >= base::kPageBytes) return static_cast<Stream*>(handle.value);
    return absl::InvalidArgumentError(absl::StrCat(
        "stream ", number,
        " is not a stream of a host device; give 0, the calling thread, or a stream of ",
        "Session::MakeStream"));
  }
  std::shared_ptr<Gate> MakeGate() override { return std::make_shared<HostGate>(); }
  DeviceOps& ops() override { return ops_; }

 private:
  static LinkPacer Pacer(const HostDeviceOptions& options) {
    return LinkPacer(options.copy_bytes_per_second, options.copy_latency_seconds);
  }

  HostArena arena_;  // declared first: the streams, destroyed before it, finish their copies
  HostOps ops_;
  HostStream to_device_;
  HostStream to_host_;
  HostStream compute_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace geminid::device
