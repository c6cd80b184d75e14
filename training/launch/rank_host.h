// The launcher's interface to a host that ranks run on, whether this host or another one.
#ifndef GEMINID_TRAINING_LAUNCH_RANK_HOST_H_
#define GEMINID_TRAINING_LAUNCH_RANK_HOST_H_

#include <poll.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "training/launch/rank_state.h"

namespace geminid::trainer {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct RankStart {
  int rank = 0;
  std::vector<std::string> arguments;  // the first is the name that it shows
  Variables environment;               // added to the host's own
};

class RankHost {
 public:
  virtual ~RankHost() = default;

  // How other hosts and people call it; empty: this one.
  virtual std::string name() const = 0;

  // Starts these ranks. Those of an earlier start have all ended.
  virtual absl::Status Start(const std::vector<RankStart>& starts) = 0;
  // Of the last start, in its order. They change in Look() alone.
  virtual std::vector<RankState*> ranks() = 0;
  // To those that run.
  virtual void Signal(int signal) = 0;

  // To poll: Look() has something to do when one is ready, and at that time.
  virtual void AddTo(std::vector<pollfd>* fds) const = 0;
  virtual absl::Time look_by() const { return absl::InfiniteFuture(); }
  virtual void Look(absl::Time now) = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RANK_HOST_H_
