// Incoming connections of a rank. Each rank listens at an address and port that all others know,
// from the beginning of its job to the end. Groups connect there, and a group's survivors meet
// there.
#ifndef GEMINID_COLLECTIVES_TCP_PEER_LISTENER_H_
#define GEMINID_COLLECTIVES_TCP_PEER_LISTENER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/tcp/frame.h"

namespace geminid::collectives {

// Usable on any thread; several threads may wait for different arrivals.
class PeerListener {
 public:
  // Listens at a free port: only at `interface_address` if that is set; else at the loopback
  // interface if `rank_0_host` names it; else at all interfaces.
  static absl::StatusOr<std::unique_ptr<PeerListener>> Open(const std::string& rank_0_host,
                                                            const std::string& interface_address);

  uint16_t port() const { return port_; }

  // Connections for `purpose` that came since the last call, by the rank that they name. Only their
  // introductions have been read. Does not wait. RESOURCE_EXHAUSTED if a connection waits and this
  // process may have no more descriptors.
  absl::StatusOr<std::map<int, base::UniqueFd>> Take(const std::string& purpose);
  // Waits until Take() may have more, for at most a few milliseconds.
  void Await(const base::Deadline& deadline);

 private:
  struct Visitor {
    base::UniqueFd socket{};
    FrameReader reader{};
    std::string purpose{};  // set once it has introduced itself
    int rank = -1;
  };

  PeerListener(base::UniqueFd listener, uint16_t port)
      : listener_(std::move(listener)), port_(port) {}
  absl::Status Accept();
  // False if the connection has ended or is not one of geminid.
  static bool Hear(Visitor* visitor);

  const base::UniqueFd listener_;
  const uint16_t port_;
  std::mutex mutex_;
  // In the order of arrival. Some never introduce themselves.
  std::vector<Visitor> visitors_;
};

// The first message on a connection to another rank. Purposes are unique among jobs.
absl::Status Introduce(int socket, const std::string& purpose, int rank);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_PEER_LISTENER_H_
