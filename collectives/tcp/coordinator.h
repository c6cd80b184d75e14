// What rank 0 does for the ranks of a job on several hosts: tells them when all are there and
// where, and spreads the news of failures. Pure: no sockets, no clock.
#ifndef GEMINID_COLLECTIVES_TCP_COORDINATOR_H_
#define GEMINID_COLLECTIVES_TCP_COORDINATOR_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/tcp/frame.h"

namespace geminid::collectives {

// A longer hello is refused.
inline constexpr size_t kMaxHelloBytes = 1024;

class Coordinator {
 public:
  Coordinator(int world_size, std::string job);

  // Connections are numbered by the caller and never reused.
  struct Outgoing {
    int connection = 0;
    Frame frame;
    bool close_after = false;
  };
  std::vector<Outgoing> OnFrame(int connection, const Frame& frame);
  // The connection ended. A rank that had not said kBye has died.
  std::vector<Outgoing> OnClosed(int connection);
  // Nothing came on the connection for so long, from a host at `address`. The rank is as good as
  // dead, and is told so as well: it may only have stood still.
  std::vector<Outgoing> OnSilent(int connection, absl::Duration silence,
                                 const std::string& address);
  // The coordinator ends in good order.
  std::vector<Outgoing> OnShutdown() const;

  std::vector<int> missing_ranks() const;

 private:
  std::vector<Outgoing> Admit(int connection, const Frame& hello);
  std::vector<Outgoing> ToAll(const Frame& frame) const;
  static std::vector<Outgoing> Refuse(int connection, const std::string& reason);

  const int world_size_;
  const std::string job_;
  std::map<int, int> rank_of_;             // by connection, admitted and not gone
  std::vector<bool> admitted_;             // by rank, ever
  std::vector<Place> places_;              // by rank
  std::map<std::string, Frame> failures_;  // the first of each group
  std::vector<Frame> deaths_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_COORDINATOR_H_
