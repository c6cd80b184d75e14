// The device seam: the library uses accelerators only through this interface.
//
//   host/  slabs are memfds, copies are memcpy on one thread per direction. Also for real use:
//          laptops and test machines train on it. A strict one has an arena that only copies and
//          operations can touch.
//   cuda/  an NVIDIA GPU, through its driver.
// Every implementation passes tests/client/device/device_conformance_test.cc.
#ifndef GEMINID_CLIENT_DEVICE_DEVICE_H_
#define GEMINID_CLIENT_DEVICE_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/device/device_ops.h"
#include "geminid/communicator.h"
#include "geminid/stream.h"
#include "geminid/types.h"

namespace geminid::device {

enum class Direction { kHostToDevice = 0, kDeviceToHost = 1 };
inline constexpr int kDirections = 2;

struct Copy {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  uint64_t bytes = 0;
  // Set to `completion_value` (release) once every byte has arrived; not if the copy fails. May be
  // null.
  std::atomic<uint64_t>* completion = nullptr;
  uint64_t completion_value = 0;
  // Called once, after the completion word is written, on a thread of the device. Must not block.
  std::function<void(const absl::Status&)> on_done;
};

// An in-order stream for copies. At most two of its copies are on the link at a time.
class CopyStream : public Stream {
 public:
  // Does not block. Errors are reported to on_done only; later copies still run.
  virtual void Submit(Copy copy) = 0;
};

// An event that the host triggers, once.
class Gate : public Event {
 public:
  virtual void Open() = 0;
};

struct MemoryInfo {
  uint64_t reserved_bytes = 0;  // of address space
  uint64_t imported_bytes = 0;  // of slabs
};

// Thread-safe, except ReserveArena, ImportSlab, ReleaseSlabs, ReserveViews and ReleaseViews. The
// destructor completes everything submitted, then unmaps the arena.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;

  // Reserves contiguous addresses for an arena of `bytes`, in whole pages. May be called once.
  virtual absl::Status ReserveArena(uint64_t bytes) = 0;

  // Maps the slab behind `slab` at base() + offset. The slab may be used once this has returned.
  // INVALID_ARGUMENT if it is not whole pages within the arena, overlaps another slab, or its
  // descriptor has fewer bytes or could shrink.
  virtual absl::Status ImportSlab(base::UniqueFd slab, uint64_t offset, uint64_t bytes) = 0;

  // Unmaps all slabs. Their addresses stay reserved, and other slabs may be imported. No copy or
  // operation may be in progress.
  virtual absl::Status ReleaseSlabs() = 0;

  // Reserves other addresses, `bytes` in whole pages, where parts of the arena can be mapped again.
  // Releases those reserved before. UNIMPLEMENTED if the device cannot.
  virtual absl::Status ReserveViews(uint64_t bytes) = 0;
  virtual void ReleaseViews() = 0;
  // Null without views. Only the device may use these addresses, as with those of the arena.
  virtual std::byte* views() const = 0;
  // Maps whole pages of the arena from `offset` on, which slabs cover, at views() + `at` too, until
  // UnmapView. Threads may do this at the same time for different pages.
  virtual absl::Status MapView(uint64_t at, uint64_t offset, uint64_t bytes) = 0;
  virtual absl::Status UnmapView(uint64_t at, uint64_t bytes) = 0;
  // Maps other, undefined memory there, so that late uses of these addresses do no harm.
  virtual absl::Status FillView(uint64_t at, uint64_t bytes) = 0;

  // Prepares mapped host memory for asynchronous copies, if the device needs that, until
  // UnregisterHost or the device's end.
  virtual absl::Status RegisterHost(std::span<std::byte> memory) = 0;
  virtual void UnregisterHost(std::span<std::byte> memory) = 0;
  virtual HostRegistration host_registration() const { return {}; }

  // The arena's address; null before ReserveArena. Only the device's copies and operations may
  // touch memory there.
  virtual std::byte* base() const = 0;
  virtual MemoryInfo memory_info() const = 0;

  // The address at which this process's own code finds the data of an arena address, in stream
  // order as on the device. For compute on the host and for collectives through host memory. Other
  // addresses are returned unchanged. Null on a device whose memory the host cannot touch.
  virtual std::byte* HostAddress(std::byte* address) const = 0;

  // Streams that the device owns.
  virtual CopyStream& copy_stream(Direction direction) = 0;
  virtual Stream& compute_stream() = 0;

  // Creates a stream, which must end before the device. `name`: at most 15 characters, for people.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name) = 0;

  // The same for a thread that waits for each operation that it queues. On the host device the
  // thread executes it at once.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStreamOfCaller(const std::string& name) {
    return MakeStream(name);
  }

  // The trainer's stream, which outlives its use here. INVALID_ARGUMENT for an invalid handle.
  virtual absl::StatusOr<Stream*> StreamOf(StreamHandle handle) = 0;
  // Creates a gate that streams of this device can wait for.
  virtual std::shared_ptr<Gate> MakeGate() = 0;

  virtual DeviceOps& ops() = 0;

  // Collective. A communicator of the ranks of `control`, which it takes over, for buffers in
  // memory of the ranks' devices. Its reductions of up to `scratch_bytes` use no further device
  // memory. Errors are the same on all ranks. UNAVAILABLE: nothing moves memory between these
  // devices. UNIMPLEMENTED, at once: this is a host device.
  virtual absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectRanks(
      std::unique_ptr<collectives::Communicator> /*control*/, uint64_t /*scratch_bytes*/) {
    return absl::UnimplementedError("memory of this device is the host's");
  }
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_DEVICE_H_
