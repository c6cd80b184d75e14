// Connects one rank to the other ranks and to its daemon.
#ifndef GEMINID_TRAINING_RANKS_RANK_SESSION_H_
#define GEMINID_TRAINING_RANKS_RANK_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/rank_info.h"
#include "geminid/session.h"
#include "training/data/token_source.h"
#include "training/launch/handover_memory.h"
#include "training/launch/host_spread.h"
#include "training/launch/restarts.h"
#include "training/launch/run_memory.h"
#include "training/logs/progress.h"
#include "training/settings/options.h"

namespace geminid::trainer {

struct RankContext {
  collectives::RankInfo info;
  Restarts restarts{};
  RunMemory run_memory{};
  bool is_launched = false;                            // by this program's launcher
  std::shared_ptr<HandoverMemory> handover = nullptr;  // null: state is not handed over
  HostSpread spread{};                                 // of the run's ranks over hosts
  // Whether mesh and batch allow so many ranks. Null: they are not asked.
  std::function<absl::Status(int ranks)> check_ranks = nullptr;
  std::string socket;                 // of the daemon
  const TokenSource* data = nullptr;  // what to learn, if anything
  Progress::Write write_stderr;
  bool stderr_is_terminal = false;
  Progress::Width terminal_width;  // null: 80 columns
  std::function<int()> stop_signal =
      nullptr;  // the signal that asks for an end, 0 before; null: none
  // Whether a signal may end the process at once, as nothing is lost then. Null: nobody asks.
  std::function<void(bool)> nothing_to_save = nullptr;
  // The job waits in the daemon's queue; called again and again meanwhile. Null: nobody asks.
  std::function<void()> on_wait = nullptr;
  // Tells the launcher that the run is done; before the goodbye to the daemon. Null: it cannot be
  // told.
  std::function<void()> say_done = nullptr;
  // The rank has failed, and lets go of its device now, should that still answer. Null: it may take
  // as long as it likes.
  std::function<void(const absl::Status&)> on_failure = nullptr;
};

// Whether it is the first rank of the run's on its host.
bool LeadsHost(const RankContext& context);

// Waits for the other ranks.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectRanks(const TrainOptions& options,
                                                                        const RankContext& context);

// Whether one of the ranks says so, once all of them have come here.
absl::StatusOr<bool> AnyRank(collectives::Communicator& communicator, bool mine);

// A session with an arena of `options`' size, or of `unlimited_bytes` if they have none. Waits in
// the daemon's queue, and says for what; CANCELLED where a signal asks for an end meanwhile.
struct YieldOptions {
  bool gives_way = false;  // to jobs of higher priority, which have the arena meanwhile
  bool is_kept = false;    // so that a successor can go on from there
};
absl::StatusOr<std::unique_ptr<Session>> ConnectDaemon(const TrainOptions& options,
                                                       const RankContext& context,
                                                       uint64_t unlimited_bytes,
                                                       YieldOptions between);

// For training, as `stage` of a pipeline. Without a limit there is to be room for activations too,
// if the daemon has it. Ranks with different parts of the model do not agree on giving way to other
// jobs.
absl::StatusOr<std::unique_ptr<Session>> ConnectToTrain(const TrainOptions& options,
                                                        const RankContext& context, size_t threads,
                                                        int stage);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_RANK_SESSION_H_
