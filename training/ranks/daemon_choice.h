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

// The device and host memory together that a daemon hands out by default.
uint64_t DefaultMemoryBytes();

// The most device memory that each of so many ranks on this host asks for without --device-memory.
uint64_t UsualDeviceBytes(const TrainOptions& options, int ranks);

// Ranks of a run, and the arena of each.
struct RanksArena {
  int ranks = 0;
  uint64_t arena_bytes = 0;
};
// The arena of each rank if the run of `now` gets `ranks` ranks. Without --device-memory, more
// ranks that share the batch have smaller arenas, and fewer ranks larger ones.
uint64_t RankDeviceBytes(const TrainOptions& options, const RanksArena& now, int ranks);

struct DaemonChoice {
  std::string socket;
  std::unique_ptr<PrivateDaemon> own;  // null: the run uses a daemon that is not its own
};

// The first of: options.socket, $GEMINID_SOCKET, the installed daemon, a new private daemon. Only a
// private daemon takes --host-memory: with that flag the installed daemon is skipped, and a named
// daemon is INVALID_ARGUMENT. A private daemon has the device memory that `ranks_here` of `ranks`
// ranks ask for; RESOURCE_EXHAUSTED if this machine has less.
absl::StatusOr<DaemonChoice> ChooseDaemon(const TrainOptions& options, int ranks, int ranks_here);

// A line that names the flags whose effect is on other jobs of the daemon, where this run has a
// daemon of its own. Empty: none was given, or others may use that daemon too.
std::string WithoutOtherJobs(const DaemonChoice& choice, const TrainOptions& options);

// The lines at the end of a run's own daemon's log that warn, or tell of an error: what a run that
// failed adds to its words, for that log goes with it. Empty: there are none, or it is somebody
// else's daemon.
std::string ComplaintsOf(const DaemonChoice& choice);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_DAEMON_CHOICE_H_
