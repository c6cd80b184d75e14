// Ranks on several hosts: shared memory within a host, TCP between hosts.
//
// Each byte crosses the network once per host that needs it, to the rank of the same number there.
// That host's other ranks get it through shared memory:
//   AllGather, Broadcast  between ranks of equal number on all hosts, then within each host
//   AllReduce, Reduce, ReduceScatter  each rank gathers a lane of its host's inputs. The partial
//       sums of a lane go from host to host in rank order, and the sums come back (see
//       chain_plan.h)
//   AllToAll  within each host to the number of the destination, then between equal numbers
//   Gather, Send, Receive  from rank to rank
// Hosts may have different numbers of ranks. Then the lanes belong to the numbers that the smallest
// host has. AllGather goes between all numbers that two hosts have in common. AllToAll goes from
// rank to rank.
//
// Every reduction is in rank order, as with all backends, so it has the same bits as on one host. A
// sum within each host first would be in another order. The table has the bytes on the busiest
// link of a host, with N hosts and S bytes per rank, and the minimum over all orders:
//   AllReduce      S with two hosts, 2 S with more     2 S (N-1)/N
//   ReduceScatter  S with two hosts, S + S/N with more   S (N-1)/N
// bfloat16 and float16 travel as fp32 until they are rounded, which doubles the first S. If
// messages from each rank to each rank promise to be faster, they are used instead. The costs for
// that choice are measured when the ranks connect. The choice is free, because both ways give the
// same bits.
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

// The options are the same on all ranks.
struct HierarchyOptions {
  ShmOptions shm{};
  // The costs by which reductions choose the faster way; see algorithm_choice.h. Unset: measured
  // when the ranks connect.
  std::optional<LinkCosts> costs = std::nullopt;
  // Limits for a lane of a block; see chain_plan.h. A lane should be long enough to hide the
  // latency of sending it, and short enough that the reduced elements have many lanes.
  size_t longest_lane_bytes = 1024 * 1024;
  size_t shortest_lane_bytes = 64 * 1024;
};

struct HierarchicalOptions {
  TcpOptions network{};
  HierarchyOptions hierarchy{};
  std::string host{};  // name of this rank's host; empty: asks the system
};

// Blocks until all ranks have connected to each other. The ranks tell each other which hosts they
// are on. On one host the result is a communicator of shared memory. It is one of TCP alone if each
// host has one rank, or if the ranks of a host are not consecutive.
// Every pair of ranks has a connection, but few carry bytes; see CommunicatorStats::network.
// Besides the shared memory a rank has buffers of 2 L + 4 lanes, with L ranks on its host, and as
// much as the largest AllToAll needed.
//
// A timeout names a rank that has not come, if its host's other ranks came at about the same time
// as all others. Otherwise it may name one of those, which waits for that rank.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectHierarchical(int rank, int world_size,
                                                                  HierarchicalOptions options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
