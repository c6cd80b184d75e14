// Who does arithmetic on the engine's data: the device on what lies in its arena, this process on
// what lies in host memory.
#ifndef GEMINID_CLIENT_ZERO_BASICS_COMPUTE_H_
#define GEMINID_CLIENT_ZERO_BASICS_COMPUTE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/device/device.h"
#include "client/device/host/host_ops.h"
#include "client/device/host/inline_stream.h"
#include "geminid/stream.h"

namespace geminid::zero {

// Operations, and the stream that they are queued on.
struct ComputePlace {
  device::DeviceOps* ops = nullptr;
  Stream* stream = nullptr;
  absl::Duration timeout;  // of Finish

  // Waits for what is queued.
  absl::Status Finish() const { return ops->Synchronize(*stream, timeout); }
  // Holds what operations read or write until everything queued so far is complete, even when
  // Finish gave up.
  void Keep(std::shared_ptr<const void> memory) const {
    stream->CallBack([memory = std::move(memory)] {});
  }
};

class Compute {
 public:
  // With a stream of its own, called `name`. `device` outlives it.
  static absl::StatusOr<std::unique_ptr<Compute>> Create(device::Device* device,
                                                         const std::string& name,
                                                         absl::Duration timeout) {
    return Make(device, device->MakeStream(name), timeout);
  }
  // For a thread that waits for whatever it queues.
  static absl::StatusOr<std::unique_ptr<Compute>> CreateForCaller(device::Device* device,
                                                                  const std::string& name,
                                                                  absl::Duration timeout) {
    return Make(device, device->MakeStreamOfCaller(name), timeout);
  }
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // In host memory it is done at once, by the caller's thread.
  const ComputePlace& on_device() const { return device_place_; }
  const ComputePlace& on_host() const { return host_place_; }
  const ComputePlace& Of(bool on_device) const { return on_device ? device_place_ : host_place_; }

 private:
  static absl::StatusOr<std::unique_ptr<Compute>> Make(
      device::Device* device, absl::StatusOr<std::unique_ptr<Stream>> stream,
      absl::Duration timeout) {
    if (!stream.ok()) return stream.status();
    return std::unique_ptr<Compute>(new Compute(device, *std::move(stream), timeout));
  }
  Compute(device::Device* device, std::unique_ptr<Stream> stream, absl::Duration timeout)
      : host_ops_(nullptr),
        stream_(std::move(stream)),
        device_place_{&device->ops(), stream_.get(), timeout},
        host_place_{&host_ops_, &inline_stream_, timeout} {}

  device::HostOps host_ops_;
  device::InlineStream inline_stream_;
  const std::unique_ptr<Stream> stream_;
  const ComputePlace device_place_;
  const ComputePlace host_place_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_COMPUTE_H_
