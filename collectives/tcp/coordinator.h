// Rank 0's service for the ranks of a job on several hosts: says when all ranks have come and where
// they are, and forwards news of failures. Pure: no sockets, no clock.
#ifndef GEMINID_COLLECTIVES_TCP_COORDINATOR_H_
#define GEMINID_COLLECTIVES_TCP_COORDINATOR_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/tcp/frame.h"

namespace geminid::collectives {

// Longer hellos are refused.
inline constexpr size_t kMaxHelloBytes = 1024;

class Coordinator {
 public:
  Coordinator(int world_size, std::string job);

  // The caller numbers connections, and never reuses a number.
  struct Outgoing {
    int connection = 0;
    Frame frame;
    bool close_after = false;
  };
  std::vector<Outgoing> OnFrame(int connection, const Frame& frame);
  // The connection ended. Its rank has died, unless it had said kBye.
  std::vector<Outgoing> OnClosed(int connection);
  // The connection, from a host at `address`, was silent for so long. The rank counts as dead and
  // is told so, since it may only have stood still.
  std::vector<Outgoing> OnSilent(int connection, absl::Duration silence,
                                 const std::string& address);
  // The coordinator closes in good order.
  std::vector<Outgoing> OnShutdown() const;

  std::vector<int> missing_ranks() const;

 private:
  std::vector<Outgoing> Admit(int connection, const Frame& hello);
  std::vector<Outgoing> ToAll(const Frame& frame) const;
  static std::vector<Outgoing> Refuse(int connection, const std::string& reason);

  const int world_size_;
  const std::string job_;
  std::map<int, int> rank_of_;             // by connection: ranks admitted and not gone
  std::vector<bool> admitted_;             // by rank: was ever admitted
  std::vector<RankAddress> rank_addresses_;  // by rank
  std::map<std::string, Frame> failures_;  // by group: its first failure
  std::vector<Frame> deaths_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_COORDINATOR_H_
