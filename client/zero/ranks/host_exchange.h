// Collectives on device memory that the host cannot touch: by way of host memory, with copies by
// the device. For ranks that share a GPU, and for GPUs that no library connects.
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

// A chunk of which each rank has one slice, in rank order.
struct ExchangedChunk {
  ChunkId chunk = kNoChunk;   // without a home; nothing is copied to or from its extent meanwhile
  std::byte* data = nullptr;  // the extent, on the device
  uint64_t elements = 0;      // a multiple of the number of ranks
  collectives::DType type = collectives::DType::kFloat32;

  uint64_t bytes() const { return elements * collectives::SizeOf(type); }
};

// Used by one thread. Each call returns when it is complete. The first call allocates host memory
// of the session, as large as the largest chunk, for this object's life. The daemon learns of a
// copy's end later than this class, and frees no memory before. All copies have tickets except one:
// a reduced slice goes to an extent that is published, for which the daemon grants no ticket.
class HostExchange {
 public:
  // All pointers outlive this object. No chunk has more than `largest_bytes`.
  HostExchange(Session* session, const ComputePlace& place, collectives::Communicator* communicator,
               uint64_t largest_bytes)
      : session_(session),
        place_(place),
        communicator_(communicator),
        largest_bytes_(largest_bytes) {}
  HostExchange(const HostExchange&) = delete;
  HostExchange& operator=(const HostExchange&) = delete;
  ~HostExchange();  // frees the host memory, unless the device may still write to it

  // Before the call only this rank's slice is valid, afterwards the whole chunk is.
  absl::Status AllGather(const ExchangedChunk& chunk);
  // This rank's slice becomes that of the mean over the ranks; the other slices are undefined.
  absl::Status Average(const ExchangedChunk& chunk);

 private:
  struct Slice {
    uint64_t begin = 0;  // bytes
    uint64_t end = 0;
  };

  absl::StatusOr<std::byte*> Storage();
  Slice OwnSlice(const ExchangedChunk& chunk) const;
  absl::Status Down(const ExchangedChunk& chunk, Slice slice);
  absl::Status Up(const ExchangedChunk& chunk, Slice slice);
  absl::Status Move(TransferSpec spec, Slice slice);
  absl::Status Noted(absl::Status status);

  Session* const session_;
  const ComputePlace place_;
  collectives::Communicator* const communicator_;
  const uint64_t largest_bytes_;
  ChunkHandle storage_;
  bool given_up_ = false;  // waiting for the device's copies
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_HOST_EXCHANGE_H_
