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
  // Rank 0's values hold for all. Each rank has `slots` staging areas of `piece_bytes`; together
  // they should fit the caches: a piece is written and then read by the peers.
  uint32_t piece_bytes = 256 * 1024;
  uint32_t slots = 4;
  // Busy waiting before a sleep; none when there are fewer processors than ranks.
  absl::Duration spin_limit = absl::Microseconds(2);
  // Called every now and then while ranks are waited for; its error ends the wait.
  std::function<absl::Status()> look = nullptr;
  // What errors call rank 0, where the group is the part of a greater one on this host.
  int first_rank = 0;
  // Where its memory is entered; null: books of its own.
  std::shared_ptr<SegmentBooks> books = nullptr;
};

// Blocks until all ranks of `name` have come; see MeetOnHost for who may and what fails. The memory
// is slots * piece_bytes per rank plus 512 KiB per pair of ranks that exchange messages.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectShm(const std::string& name, int rank,
                                                         int world_size,
                                                         const ShmOptions& options = {});

// The same, for a backend that is made of several.
absl::StatusOr<std::unique_ptr<CommunicatorBackend>> ConnectShmBackend(const std::string& name,
                                                                       int rank, int world_size,
                                                                       const ShmOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
