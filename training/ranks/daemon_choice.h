// Chooses the daemon that a run uses: one that serves already, or one of its own.
#ifndef GEMINID_TRAINING_RANKS_DAEMON_CHOICE_H_
#define GEMINID_TRAINING_RANKS_DAEMON_CHOICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/private_daemon.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// What a daemon hands out by default, device and host memory together.
uint64_t DefaultMemoryBytes();

// At most what each of so many ranks on this host asks for without --device-memory.
uint64_t UsualDeviceBytes(const TrainOptions& options, int ranks);

// Ranks of a run, and the arena of each.
struct RanksArena {
  int ranks = 0;
  uint64_t arena_bytes = 0;
};
// What each of so many ranks takes of a run that is `now`. Without --device-memory that is less
// where more of them share the batch, and more where fewer do.
uint64_t RankDeviceBytes(const TrainOptions& options, const RanksArena& now, int ranks);

struct DaemonChoice {
  std::string socket;
  std::unique_ptr<PrivateDaemon> own;  // null: somebody else's
};

// The first of: options.socket, $GEMINID_SOCKET, the installed daemon, a new private one. A limit
// of host memory is only for a private one: with it the installed daemon is passed over, and a
// named one is INVALID_ARGUMENT. A private one hands out the device memory that `ranks_here` of
// `ranks` ranks ask for; RESOURCE_EXHAUSTED if this machine does not have so much.
absl::StatusOr<DaemonChoice> ChooseDaemon(const TrainOptions& options, int ranks, int ranks_here);

// A line that names the flags whose effect is on other jobs of the daemon, where this run has a daemon
// of its own. Empty: none was given, or others may use that daemon too.
std::string WithoutOtherJobs(const DaemonChoice& choice, const TrainOptions& options);

// The lines at the end of a run's own daemon's log that warn, or tell of an error: what a run that
// failed adds to its words, for that log goes with it. Empty: there are none, or it is somebody
// else's daemon.
std::string ComplaintsOf(const DaemonChoice& choice);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_DAEMON_CHOICE_H_
