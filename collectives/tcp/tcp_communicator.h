// Ranks on any hosts, over TCP.
#ifndef GEMINID_COLLECTIVES_TCP_TCP_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_TCP_TCP_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "collectives/tcp/beats.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

struct TcpOptions {
  std::string host = "127.0.0.1";                     // of rank 0, as the other ranks reach it
  uint16_t port = 0;                                  // rank 0 serves the rendezvous there
  std::string job{};                                  // ranks of another job are refused
  absl::Duration timeout = kDefaultTimeout;           // of each operation
  absl::Duration connect_timeout = absl::Minutes(5);  // for all ranks to come
  // Of a rank, or of rank 0 to it, after which it is dead; the same on all ranks.
  absl::Duration silence = kDefaultSilence;
  // Numeric address of this rank's interface for the data; empty: the one that reaches rank 0.
  std::string interface_address{};
  // What the other ranks are told of this one's host; see hierarchical/hosts.h.
  std::string machine{};
  // Rank 0 only: an already listening socket to serve on.
  base::UniqueFd listener{};
};

// Blocks until all ranks have connected to each other. There is no authentication beyond the job's
// name and no encryption: the network between the ranks must be trusted, like that of any trainer.
// Rank 0 runs two threads for the whole job (coordinator, news), the others the second. Every pair
// of ranks keeps a connection per communicator, from a free port of the one to a free port of the
// other.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(int rank, int world_size,
                                                         TcpOptions options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_TCP_COMMUNICATOR_H_
