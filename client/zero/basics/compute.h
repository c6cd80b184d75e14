// Where the engine does arithmetic: the device works on data in its arena, this process on data in
// host memory.
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

// The operations of one place, and the stream that they are queued on.
struct ComputePlace {
  device::DeviceOps* ops = nullptr;
  Stream* stream = nullptr;
  absl::Duration timeout;  // limit of Finish

  // Waits for all queued operations.
  absl::Status Finish() const { return ops->Synchronize(*stream, timeout); }
  // Keeps the memory that operations read or write alive until everything queued so far is
  // complete, even if Finish gave up.
  void Keep(std::shared_ptr<const void> memory) const {
    stream->CallBack([memory = std::move(memory)] {});
  }
};

class Compute {
 public:
  // Computes on a stream of its own, called `name`. `device` outlives this object.
  static absl::StatusOr<std::unique_ptr<Compute>> Create(device::Device* device,
                                                         const std::string& name,
                                                         absl::Duration timeout) {
    return Make(device, device->MakeStream(name), timeout);
  }
  // As Create, for a thread that waits for every operation that it queues.
  static absl::StatusOr<std::unique_ptr<Compute>> CreateForCaller(device::Device* device,
                                                                  const std::string& name,
                                                                  absl::Duration timeout) {
    return Make(device, device->MakeStreamOfCaller(name), timeout);
  }
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // Operations on on_host() run at once, on the caller's thread.
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
