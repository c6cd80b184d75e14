// Ranks that are processes (or threads) of one host, over one shared memfd.
#ifndef GEMINID_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/segment_books.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

struct ShmOptions {
  absl::Duration timeout = kDefaultTimeout;           // of each operation
  absl::Duration connect_timeout = absl::Minutes(5);  // for all ranks to come
  // Rank 0's values hold for all ranks. Each rank has `slots` staging areas of `piece_bytes`.
  // Together they should fit into the caches: each piece is written and then read by the peers.
  uint32_t piece_bytes = 256 * 1024;
  uint32_t slots = 4;
  uint32_t message_bytes = 128 * 1024;  // the piece of a message between two ranks
  // Busy waiting before a sleep; none if there are fewer processors than ranks.
  absl::Duration spin_limit = absl::Microseconds(2);
  // Called from time to time while this rank waits for others; its error ends the wait.
  std::function<absl::Status()> look = nullptr;
  // The number of rank 0 in errors, if this group is a part of a larger group.
  int first_rank = 0;
  // Where the memory is recorded; null: in books of its own.
  std::shared_ptr<SegmentBooks> books = nullptr;

  // For so many ranks, with pages as pieces.
  void UseLittleMemory(size_t ranks);
};

// Blocks until all ranks of `name` have come; see MeetOnHost for errors. Needs slots * piece_bytes
// of memory per rank, and 512 KiB per pair of ranks that exchange messages.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectShm(const std::string& name, int rank,
                                                         int world_size,
                                                         const ShmOptions& options = {});

// The same, for a backend that consists of several.
absl::StatusOr<std::unique_ptr<CommunicatorBackend>> ConnectShmBackend(const std::string& name,
                                                                       int rank, int world_size,
                                                                       const ShmOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
