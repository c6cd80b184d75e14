// Collectives on memory of a device that the host cannot touch: by way of host memory, which the
// device copies to and from. For where ranks share a GPU, or nothing moves memory between GPUs.
#ifndef GEMINID_CLIENT_ZERO_RANKS_HOST_EXCHANGE_H_
#define GEMINID_CLIENT_ZERO_RANKS_HOST_EXCHANGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/basics/compute.h"
#include "geminid/buffer.h"
#include "geminid/communicator.h"
#include "geminid/session.h"

namespace geminid::zero {

// What all ranks have a slice of, one behind the other.
struct Exchanged {
  ChunkId chunk = kNoChunk;   // without a home; nothing is under way to or from its extent
  std::byte* data = nullptr;  // that extent, on the device
  uint64_t elements = 0;      // a multiple of the ranks
  collectives::DType type = collectives::DType::kFloat32;

  uint64_t bytes() const { return elements * collectives::SizeOf(type); }
};

// Of one thread. Each call is done when it returns. The first call takes as much host memory of the
// session as the largest chunk has, and keeps it. The daemon hears of a copy's end later than this
// class, and frees no memory until then. The copies are those of tickets but for one: a reduced
// slice goes up into an extent that is published, for which the daemon grants no ticket.
class HostExchange {
 public:
  // All outlive it. No chunk has more than `largest_bytes`.
  HostExchange(Session* session, const ComputePlace& place, collectives::Communicator* communicator,
               uint64_t largest_bytes)
      : session_(session),
        place_(place),
        communicator_(communicator),
        largest_bytes_(largest_bytes) {}
  HostExchange(const HostExchange&) = delete;
  HostExchange& operator=(const HostExchange&) = delete;
  ~HostExchange();  // its memory goes back, unless the device may write to it still

  // This rank's slice is there; afterwards all are.
  absl::Status AllGather(const Exchanged& chunk);
  // This rank's slice becomes that of the mean over the ranks; the others hold anything.
  absl::Status Average(const Exchanged& chunk);

 private:
  struct Slice {
    uint64_t begin = 0;  // bytes
    uint64_t end = 0;
  };

  absl::StatusOr<std::byte*> Storage();
  Slice OwnSlice(const Exchanged& chunk) const;
  absl::Status Down(const Exchanged& chunk, Slice slice);
  absl::Status Up(const Exchanged& chunk, Slice slice);
  absl::Status Move(TransferSpec spec, Slice slice);
  absl::Status Noted(absl::Status status);

  Session* const session_;
  const ComputePlace place_;
  collectives::Communicator* const communicator_;
  const uint64_t largest_bytes_;
  ChunkHandle storage_;
  bool given_up_ = false;  // on the device's copies
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_HOST_EXCHANGE_H_
