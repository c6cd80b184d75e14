// Starts the ranks of a job as processes, on this host or on several, and ends all of them
// together.
#ifndef GEMINID_TRAINING_LAUNCH_LAUNCHER_H_
#define GEMINID_TRAINING_LAUNCH_LAUNCHER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/ranks_range.h"

namespace geminid::trainer {

class OutcomeTeller;  // outcome_teller.h
class RankHost;       // rank_host.h
struct MoveRequest;   // handover_memory.h

struct LaunchOptions {
  std::shared_ptr<RankHost> host = nullptr;  // that all ranks begin on; null: this one
  int ranks = 1;
  int restarts = 0;       // how often all ranks are started again after one has failed
  int restarts_made = 0;  // of those, by launches of this run on other hosts
  // Ranks can hand their state over to another number of ranks (Restarts). After a death for which
  // there is no restart the run goes on with fewer, but at least with `min_ranks`; 0: it ends.
  // `fits` says which numbers mesh and batch allow; null: any.
  bool hands_over = false;
  int min_ranks = 0;
  // Set: the daemon may change the number of ranks by itself. Needs hands_over.
  std::optional<RanksRange> share{};
  std::function<bool(int ranks)> fits{};
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;                              // without the program's name
  std::vector<std::pair<std::string, std::string>> environment{};  // added to the host's
  std::vector<std::pair<std::string, std::string>> environment_here{};  // on this host alone
  // A run that hands_over may go on at another host: `reach` begins to make that host ready, whose
  // destruction ends it. Null: it stays.
  std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> reach{};
  // For a run that returns to this host: says whether it has room. Null: there is room.
  std::function<absl::Status(const MoveRequest&)> check_here{};
  OutcomeTeller* teller_here = nullptr;  // to this host's daemon; null: the daemon is not told
  // After a rank's failure, the other ranks get the settle time to end by themselves. Then they get
  // SIGTERM, and after the grace time SIGKILL. If all ranks that have ended were stopped by another
  // rank, that rank knows the reason, and so gets the grace time before SIGTERM too.
  absl::Duration settle_time = absl::Milliseconds(500);
  absl::Duration grace_time = absl::Seconds(3);
  // The grace time after the loss of a host. Ranks on other hosts do not notice the loss.
  absl::Duration lost_grace_time = absl::Milliseconds(200);
  // Gets rank 0's stderr and the launcher's own lines.
  std::function<void(const std::string&)> write_stderr;
  // Called once for each GEMINID_JOB_ID, after the last of its ranks has ended for good.
  std::function<void(const std::string& job_id, int ranks)> at_end{};
};

// Starts the ranks with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and a job id,
// and waits for all of them. Rank 0's stderr is passed on at once. The last words of each other
// rank are stored, and printed if they are the reason of a failure. SIGINT, SIGTERM and SIGHUP are
// passed on to the ranks, which may take their time to end; a second signal kills the ranks. If
// this process dies, the ranks are killed.
//
// Ranks whose host is lost count as failed before all others. Launch cannot restart them.
//
// With restarts, some failures are followed by a new start of all ranks: those that a new start may
// avoid, because a rank was killed, or lost its daemon or another rank. The other ranks are ended
// first, and a line reports each new start. Ranks learn of it from training/launch/restarts.h. When
// a rank has returned 0, all ranks have done their part; a later failure is reported but does not
// count.
//
// Returns the exit code for this process:
//   0, if all ranks returned 0;
//   the code of an end that all ranks agree on: 128 plus one of those signals, or kExitDiverged;
//   128 plus the signal that was passed on, if it killed the ranks;
//   else the code of the rank that caused the failure; 1 if a signal killed this rank.
// The cause is a rank that was killed, else the first one that returned an error. A rank that
// misses another one (kExitUnavailable) comes after these, and a rank that was only stopped
// (kExitAborted) last. No process is left when this returns.
//
// When ranks have handed over their state (HandoverMemory::Complete), the next ranks start in a job
// of another id, no matter how the old ranks ended. If the new ranks fail while the state still
// exists, they are started again, and after that as many ranks as before. If they cannot be
// started, as many ranks as before start at once. A signal that came too late for an end is told to
// each start.
//
// Ranks may ask to go on at another host (MoveRequest). They train until the answer: the host is
// ready, or it refuses. Then their state is copied there, and the next ranks start there. If these
// do not come to their second step, the run goes back to the old host, which still has the state. A
// host that is lost later ends the run. If a person ends the job while it moves (RunPlace), ranks
// at the new host get SIGTERM and after the grace time SIGKILL, and Launch returns CANCELLED.
//
// `so_far` gets how far the run has come.
//
// Blocks. Call it from the main thread, before other threads exist: it blocks those signals.
struct LaunchedSoFar {
  int restarts_made = 0;  // with those before
  int ranks = 0;          // of the last start
};
absl::StatusOr<int> Launch(const LaunchOptions& options, LaunchedSoFar* so_far = nullptr);

// Whether Launch started this process as a rank, and that launcher is still alive.
bool IsLaunched();

// The names that ps and top show for a rank: "geminid-train: rank 1" as the command line, and
// "geminid-rank 1" as the process name, which has at most 15 characters.
std::string RankName(int rank);
std::string ShortRankName(int rank);

// `arguments` without the options `names` and their values. Each of these options takes a value.
std::vector<std::string> WithoutOptions(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& names);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_LAUNCHER_H_
