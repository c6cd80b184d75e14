// Runs one function on every rank of a group made by any backend.
#ifndef GEMINID_TESTS_COLLECTIVES_WORLD_H_
#define GEMINID_TESTS_COLLECTIVES_WORLD_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

using Communicators = std::vector<std::unique_ptr<Communicator>>;

struct Backend {
  std::string name;
  // Connects all ranks of a new group within this process; fails the test if it cannot.
  std::function<Communicators(int world_size, absl::Duration timeout)> connect;
  std::vector<int> world_sizes = {1, 2, 3, 4};  // that the suite runs over

  friend std::ostream& operator<<(std::ostream& os, const Backend& backend) {
    return os << backend.name;
  }
};

// The backends that the suite runs over; each test program defines it.
std::vector<Backend> BackendsUnderTest();

Backend LocalBackend();
Backend ShmBackend();
// With a piece_bytes so small that a test's few elements already fill many rounds.
Backend ShmSmallPiecesBackend();

// Makes one communicator per rank, each on a thread, because connecting blocks until all ranks
// come.
Communicators ConnectInThreads(
    int world_size,
    const std::function<absl::StatusOr<std::unique_ptr<Communicator>>(int rank)>& connect);

// Calls `body` for every communicator, each on its own thread; returns when all have returned.
void ForEachRank(Communicators& communicators, const std::function<void(Communicator&)>& body);

uint64_t ReceivedFromAll(const std::vector<PeerTraffic>& peers);

// For tests of the message at a timeout that all other ranks must reach in time. On a busy machine
// a rank may be too late. Calls `attempt` with longer and longer timeouts until it returns that all
// were in time, and returns whether it did.
bool WithTimeForAll(const std::function<bool(absl::Duration timeout)>& attempt);

// A name that no other group of this machine uses.
std::string UniqueName();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_WORLD_H_
