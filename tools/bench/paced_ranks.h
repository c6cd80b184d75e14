// Ranks of one machine whose messages take the time of a network.
#ifndef GEMINID_TOOLS_BENCH_PACED_RANKS_H_
#define GEMINID_TOOLS_BENCH_PACED_RANKS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "geminid/communicator.h"

namespace geminid::collectives {

using LinkTime = std::chrono::steady_clock::time_point;
using LinkSeconds = std::chrono::duration<double>;

struct LinkSpeed {
  LinkSeconds latency{0};
  LinkSeconds per_byte{0};
};

// One way from a rank to another. It carries one message at a time; later messages wait in order.
class Link {
 public:
  explicit Link(const LinkSpeed& speed) : speed_(speed) {}
  // The arrival time of a message that is handed over now. Messages are handed over in order.
  LinkTime Carry(LinkTime now, size_t bytes);

 private:
  const LinkSpeed speed_;
  LinkTime free_ = LinkTime::min();
};

struct LinkClock {
  std::function<LinkTime()> now;
  std::function<void(LinkTime)> wait_until;
};
LinkClock SteadyLinkClock();

// Paces `ranks` and all their subsets. Send and Receive work as before, but a Receive returns no
// sooner than the link between the two ranks would have delivered the message. Every two ranks of
// every subset have their own link each way. A message enters it when the backend takes the
// message, so a backend that holds a Send until its Receive makes a slower network. A Barrier takes
// no link time. Other operations: UNIMPLEMENTED. All ranks run on one machine, with one steady
// clock.
std::unique_ptr<Communicator> PaceRanks(std::unique_ptr<Communicator> ranks, const LinkSpeed& speed,
                                        LinkClock clock = SteadyLinkClock());

}  // namespace geminid::collectives

#endif  // GEMINID_TOOLS_BENCH_PACED_RANKS_H_
