// Ranks on several hosts: shared memory within a host, TCP between hosts.
//
// Each byte crosses the network once per host that needs it, to the rank of the same number there,
// and gets to that host's other ranks through memory:
//   AllGather, Broadcast  between equal numbers of all hosts, then within each host
//   AllReduce, Reduce, ReduceScatter  each rank gathers a lane of its host's inputs; partial sums
//   of
//       a lane go from host to host in rank order, and the sums come back (see chain_plan.h)
//   AllToAll  within each host what goes to one number, then between equal numbers
//   Gather, Send, Receive  from rank to rank
// Where hosts have different numbers of ranks, the smallest has numbers that all have: ranks of
// those numbers carry the lanes, AllGather goes between all numbers that two hosts have, and
// AllToAll from rank to rank.
//
// The order of every reduction is that of the ranks, as with every other backend: the same bits as
// on one host. So a sum is not made within each host and then over the hosts, which would be
// another order. What this costs, with N hosts and S bytes per rank, on the busiest link of a host,
// and what it would be in the best of orders:
//   AllReduce      S with two hosts, 2 S with more     2 S (N-1)/N
//   ReduceScatter  S with two hosts, S + S/N with more   S (N-1)/N
// bfloat16 and float16 travel as fp32 until they are rounded, which doubles the first S. Where
// messages from each rank to each promise to be faster, those are sent instead, by costs that are
// measured when the ranks connect: that the bits are the same makes it a free choice.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "collectives/shm/shm_communicator.h"
#include "collectives/tcp/tcp_communicator.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// The same on all ranks.
struct HierarchyOptions {
  ShmOptions shm{};
  // By which reductions take the way that promises to be faster; see way_choice.h. Unset: measured
  // when the ranks connect.
  std::optional<LinkCosts> costs = std::nullopt;
  // A lane of a block; see chain_plan.h. As long as the time it takes to send it hides the time it
  // takes to start, as short as many of them fit in what is reduced.
  size_t longest_lane_bytes = 1024 * 1024;
  size_t shortest_lane_bytes = 64 * 1024;
};

struct HierarchicalOptions {
  TcpOptions network{};
  HierarchyOptions hierarchy{};
  std::string host{};  // of this rank; empty: what the machine says
};

// Blocks until all ranks have connected to each other. The ranks tell each other which host they
// are on. With one host the communicator is one of shared memory, and one of TCP alone where hosts
// have one rank each, or ranks whose numbers do not follow each other.
// Every pair of ranks keeps a connection, of which few carry bytes; see CommunicatorStats::network.
// Beside the shared memory a rank keeps 2 L + 4 lanes with L ranks on its host, and as much as the
// largest AllToAll has had.
//
// A timeout names a rank that has not come, if its host's other ranks have come at about the time
// that all others have; else it may name one of them, which waits for it.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectHierarchical(int rank, int world_size,
                                                                  HierarchicalOptions options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
