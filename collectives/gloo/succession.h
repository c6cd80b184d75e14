// Where the survivors of a group meet: whoever was its coordinator may be among the dead.
//
// Every rank listens, from the beginning, at a place that all others know. Nobody listens there
// once it is dead, and a host that is gone does not answer. So each rank asks those before it in
// the group, one after the other, and follows the first that is there; if there is none it leads. A
// leader waits until each rank behind it has come, has left the group, or is dead, and then tells
// those that have come who they are and where it will coordinate them. Connections end with whoever
// dies, and the next rank is asked.
#ifndef GEMINID_COLLECTIVES_GLOO_SUCCESSION_H_
#define GEMINID_COLLECTIVES_GLOO_SUCCESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/gloo/frame.h"

namespace geminid::collectives {

// Of a rank of a job. Groups may meet at the same time.
class Succession {
 public:
  // Listens at a free port of the host's `address`.
  static absl::StatusOr<std::unique_ptr<Succession>> Open(const std::string& address,
                                                          std::string job);

  // What the others are to know, and what they have said, by rank of the job.
  const std::string& own_place() const { return own_place_; }
  void SetPlaces(std::vector<std::string> places) { places_ = std::move(places); }

  struct Group {
    std::string group{};             // its name
    std::vector<int> world_ranks{};  // by rank of the group
    int rank = 0;
    // Of a rank of the group: that it has left, or is known to be dead. It may become so.
    std::function<bool(int rank)> is_gone{};
    absl::Duration timeout;
  };
  struct Outcome {
    std::vector<int> ranks{};  // of the group, ascending
    std::string host{};        // of the first of them
    uint16_t port = 0;
    base::UniqueFd listener{};  // there, if this rank is the first
  };
  // Blocks until all that are left have come. DEADLINE_EXCEEDED names who has not, and lives.
  absl::StatusOr<Outcome> Meet(const Group& group);

 private:
  struct Arrival {
    base::UniqueFd socket;
    FrameReader reader;
  };

  Succession(base::UniqueFd listener, std::string address, std::string own_place, std::string job);
  // Addresses of hosts that did not answer: their other ranks need not be asked.
  using Mute = std::set<std::string>;
  absl::StatusOr<base::UniqueFd> Call(const Group& group, int rank, Mute* mute) const;
  // Nothing if that rank has gone.
  absl::StatusOr<std::unique_ptr<Outcome>> Follow(const Group& group, int leader,
                                                  const base::Deadline& deadline, Mute* mute);
  absl::StatusOr<Outcome> Lead(const Group& group, const base::Deadline& deadline, Mute* mute);
  // Those that have come for this group since the last call, by rank.
  std::map<int, base::UniqueFd> TakeArrivals(const std::string& group);
  void Hear(size_t arrival);

  const base::UniqueFd listener_;
  const std::string address_;
  const std::string own_place_;
  const std::string job_;
  std::vector<std::string> places_;

  std::mutex mutex_;                // of the two below
  std::vector<Arrival> strangers_;  // have not said yet what they come for; most never will
  std::map<std::string, std::map<int, base::UniqueFd>> come_;  // by group and rank
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_SUCCESSION_H_
