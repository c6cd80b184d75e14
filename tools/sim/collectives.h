// Where simulated ranks wait for each other.
#ifndef GEMINID_TOOLS_SIM_COLLECTIVES_H_
#define GEMINID_TOOLS_SIM_COLLECTIVES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tools/sim/event_queue.h"

namespace geminid::sim {

// The communicators of a rank. Each runs its operations in order.
enum class Channel : uint8_t { kMover, kControl };
inline constexpr int kChannels = 2;

class Rendezvous {
 public:
  Rendezvous(EventQueue* events, int ranks) : events_(events), ranks_(ranks) { Reset(); }

  // The rank's next operation on the channel: `all_here` is called once every rank is there.
  void Arrive(Channel channel, int rank, std::function<void()> all_here) {
    const auto c = static_cast<size_t>(channel);
    const uint64_t n = arrived_[c][static_cast<size_t>(rank)]++;
    std::vector<std::function<void()>>& waiting = waiting_[{channel, n}];
    if (waiting.size() + 1 < static_cast<size_t>(ranks_)) {
      waiting.push_back(std::move(all_here));
      return;
    }
    for (std::function<void()>& call : waiting) events_->Soon(std::move(call));
    waiting_.erase({channel, n});
    all_here();  // the last one has nothing to wait for
  }

  // Makes the communicators anew and drops all waiting callbacks.
  void Reset() {
    waiting_.clear();
    for (auto& channel : arrived_) channel.assign(static_cast<size_t>(ranks_), 0);
  }

 private:
  EventQueue* const events_;
  const int ranks_;
  std::array<std::vector<uint64_t>, kChannels> arrived_;  // operations begun, by rank
  std::map<std::pair<Channel, uint64_t>, std::vector<std::function<void()>>> waiting_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_COLLECTIVES_H_
