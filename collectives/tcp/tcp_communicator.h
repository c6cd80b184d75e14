// Ranks on any hosts, over TCP.
#ifndef GEMINID_COLLECTIVES_TCP_TCP_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_TCP_TCP_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "collectives/tcp/heartbeat_monitor.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

struct TcpOptions {
  std::string host = "127.0.0.1";                     // rank 0's, as the other ranks reach it
  uint16_t port = 0;                                  // where rank 0 serves the rendezvous
  std::string job{};                                  // ranks of other jobs are refused
  absl::Duration timeout = kDefaultTimeout;           // of each operation
  absl::Duration connect_timeout = absl::Minutes(5);  // for all ranks to come
  // Silence of a rank or of rank 0 after which it counts as dead; the same on all ranks.
  absl::Duration silence = kDefaultSilence;
  // Numeric address of this rank's interface for data; empty: the one that reaches rank 0.
  std::string interface_address{};
  // This rank's name for its host, for the other ranks; see hierarchical/hosts.h.
  std::string machine{};
  // Only on rank 0: an already listening socket to serve on.
  base::UniqueFd listener{};
};

// Blocks until all ranks have connected to each other. There is no authentication beyond the job's
// name and no encryption: the network between the ranks must be trusted, as for any trainer. Rank 0
// runs two threads for the whole job (coordinator and news), other ranks only the second. Every
// pair of ranks has a connection per communicator, between a free port of one rank and a free port
// of the other.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(int rank, int world_size,
                                                         TcpOptions options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_TCP_COMMUNICATOR_H_
