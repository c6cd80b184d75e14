// The device seam: everything the library does with an accelerator goes through this interface.
//
//   host/    slabs are memfds, copies are memcpy on one thread per direction. A product: laptops
//            and test machines train on it. A strict one, too, whose arena nothing but copies and
//            operations can touch.
//   cuda/    an NVIDIA GPU, through its driver.
//   faulty/  a decorator that fails, delays or kills at a chosen call.
// One conformance suite (tests/client/device_conformance_test.cc) holds for every implementation.
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
  // Gets `completion_value` (release) once every byte has arrived; not when the copy fails. May be
  // null.
  std::atomic<uint64_t>* completion = nullptr;
  uint64_t completion_value = 0;
  // Called once, after the completion word was written, on a thread of the device. Must not block.
  std::function<void(const absl::Status&)> on_done;
};

// An in-order stream that copies. Of its copies, at most two are on the link at a time.
class CopyStream : public Stream {
 public:
  // Does not block. An error is reported to on_done alone; the stream goes on.
  virtual void Submit(Copy copy) = 0;
};

// An event that the host lets happen, once.
class Gate : public Event {
 public:
  virtual void Open() = 0;
};

struct MemoryInfo {
  uint64_t reserved_bytes = 0;  // of address space
  uint64_t imported_bytes = 0;  // of slabs
};

// Thread-safe but for ReserveArena, ImportSlab, ReleaseSlabs, ReserveViews and ReleaseViews.
// Destruction completes everything submitted, then unmaps the arena.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;

  // Takes contiguous addresses for an arena of `bytes` whole pages. Once.
  virtual absl::Status ReserveArena(uint64_t bytes) = 0;

  // Maps the slab behind `slab` at base() + offset; it is used only after this returned.
  // INVALID_ARGUMENT when it is not whole pages within the arena, overlaps another slab, or the
  // descriptor holds fewer bytes or could shrink.
  virtual absl::Status ImportSlab(base::UniqueFd slab, uint64_t offset, uint64_t bytes) = 0;

  // Unmaps all slabs: the addresses stay the arena's, and others may be imported. Nothing may be
  // under way.
  virtual absl::Status ReleaseSlabs() = 0;

  // Takes other addresses, `bytes` whole pages of them, at which parts of the arena can be had too:
  // those taken before go. UNIMPLEMENTED on a device that cannot.
  virtual absl::Status ReserveViews(uint64_t bytes) = 0;
  virtual void ReleaseViews() = 0;
  // Null when there are none. The device's as those of the arena are.
  virtual std::byte* views() const = 0;
  // Whole pages at `offset` of the arena, on slabs, are at views() + `at` too until they are
  // unmapped. Different pages at a time by different threads.
  virtual absl::Status MapView(uint64_t at, uint64_t offset, uint64_t bytes) = 0;
  virtual absl::Status UnmapView(uint64_t at, uint64_t bytes) = 0;
  // Other memory is there, of no contents: what still uses these addresses does no harm.
  virtual absl::Status FillView(uint64_t at, uint64_t bytes) = 0;

  // Makes mapped host memory fit for asynchronous copies, where the device needs that, until
  // UnregisterHost or the end of the device.
  virtual absl::Status RegisterHost(std::span<std::byte> memory) = 0;
  virtual void UnregisterHost(std::span<std::byte> memory) = 0;
  virtual HostRegistration host_registration() const { return {}; }

  // Null before ReserveArena. Addresses from here on are the device's: only its copies and
  // operations touch what is there.
  virtual std::byte* base() const = 0;
  virtual MemoryInfo memory_info() const = 0;

  // Where this process's own code finds what lies at an address of the arena, for compute that runs
  // on the host and for collectives through host memory; in stream order, as on the device. Other
  // addresses are their own. Null on a device whose memory the host cannot touch.
  virtual std::byte* HostAddress(std::byte* address) const = 0;

  // Of this device, which keeps them.
  virtual CopyStream& copy_stream(Direction direction) = 0;
  virtual Stream& compute_stream() = 0;

  // Another one. It must end before the device. `name`, at most 15 characters, is for people.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name) = 0;

  // The same for one thread that waits for whatever it queues: on a device of the host's memory it
  // is done at once, by that thread.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStreamOfCaller(const std::string& name) {
    return MakeStream(name);
  }

  // The trainer's, which outlives its use here. INVALID_ARGUMENT for one that cannot be.
  virtual absl::StatusOr<Stream*> StreamOf(StreamHandle handle) = 0;
  // Streams of this device can wait for it.
  virtual std::shared_ptr<Gate> MakeGate() = 0;

  virtual DeviceOps& ops() = 0;

  // A communicator of the ranks of `control`, which becomes its own, whose buffers are memory of
  // the ranks' devices; it is collective. A reduction of up to `scratch_bytes` takes no more of the
  // device than that, from now on. Errors are the same on all ranks: UNAVAILABLE where nothing
  // moves memory between their devices; UNIMPLEMENTED, at once, on a device of the host's memory.
  virtual absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectRanks(
      std::unique_ptr<collectives::Communicator> /*control*/, uint64_t /*scratch_bytes*/) {
    return absl::UnimplementedError("memory of this device is the host's");
  }
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_DEVICE_H_
