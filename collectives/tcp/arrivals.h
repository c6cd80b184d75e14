// Incoming connections of a rank. Each rank listens, from the beginning of its job to the end, at
// an address and port that all others know. Groups connect there, and survivors of a group meet
// there.
#ifndef GEMINID_COLLECTIVES_TCP_ARRIVALS_H_
#define GEMINID_COLLECTIVES_TCP_ARRIVALS_H_

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

// Any thread; several may wait for different arrivals at the same time.
class Arrivals {
 public:
  // Listens at a free port: at `interface_address` alone if there is one, else at the loopback
  // interface if `rank_0_host` is a name of that, else at all interfaces.
  static absl::StatusOr<std::unique_ptr<Arrivals>> Open(const std::string& rank_0_host,
                                                        const std::string& interface_address);

  uint16_t port() const { return port_; }

  // Those that have come for `purpose` since the last call, by the rank that they say they are.
  // Nothing of what follows their introduction has been read. Does not wait. RESOURCE_EXHAUSTED if
  // somebody is there and this process may have no further descriptor.
  absl::StatusOr<std::map<int, base::UniqueFd>> Take(const std::string& purpose);
  // Waits until Take() may have more, for a few milliseconds at most.
  void Await(const base::Deadline& deadline);

 private:
  struct Visitor {
    base::UniqueFd socket{};
    FrameReader reader{};
    std::string purpose{};  // once it has introduced itself
    int rank = -1;
  };

  Arrivals(base::UniqueFd listener, uint16_t port) : listener_(std::move(listener)), port_(port) {}
  absl::Status Accept();
  // False if it is gone, or is none of ours.
  static bool Hear(Visitor* visitor);

  const base::UniqueFd listener_;
  const uint16_t port_;
  std::mutex mutex_;
  // In the order in which they came. Some never introduce themselves.
  std::vector<Visitor> visitors_;
};

// What a rank says first where it comes. Purposes are unique among jobs.
absl::Status Introduce(int socket, const std::string& purpose, int rank);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_ARRIVALS_H_
