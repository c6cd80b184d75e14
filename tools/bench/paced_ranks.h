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

// One way from a rank to another. It carries one message at a time; those behind it wait there.
class Link {
 public:
  explicit Link(const LinkSpeed& speed) : speed_(speed) {}
  // When a message arrives that is handed over now. Messages are handed over in order.
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

// Of `ranks` and of all subsets that are made of it: Send and Receive as they are, but a Receive
// returns no sooner than the link between the two would have brought the message. Every two ranks
// of every subset have a link of their own each way, which begins when the backend takes the
// message: one that holds a Send until its Receive is a slower network. A Barrier takes the time
// that it takes without links. UNIMPLEMENTED: anything else. All ranks on one machine, which has
// one steady clock.
std::unique_ptr<Communicator> PaceRanks(std::unique_ptr<Communicator> ranks, const LinkSpeed& speed,
                                        LinkClock clock = SteadyLinkClock());

}  // namespace geminid::collectives

#endif  // GEMINID_TOOLS_BENCH_PACED_RANKS_H_
