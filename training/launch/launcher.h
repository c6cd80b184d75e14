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

class RankHost;      // rank_host.h
struct MoveOutcome;  // rank_host.h
struct MoveRequest;  // handover_memory.h

struct LaunchOptions {
  // Ranks follow each other host by host. On several, rank 0's is reached at `master_address`.
  struct Place {
    RankHost* host = nullptr;
    int ranks = 1;
  };
  std::vector<Place> places{};  // none: all ranks are on this host
  std::string master_address = "127.0.0.1";
  int ranks = 1;
  int restarts = 0;       // how often all ranks are started again after one has failed
  int restarts_made = 0;  // of those, by launches of this run on other hosts
  // Ranks of this host can hand their state over to another number of ranks (Restarts). After a
  // death for which there is no restart the run goes on with fewer, but at least with `min_ranks`;
  // 0: it ends. `fits` says which numbers mesh and batch allow; null: any.
  bool hands_over = false;
  int min_ranks = 0;
  // The daemon may give the run other numbers of ranks by itself; such a run needs hands_over.
  std::optional<RanksRange> share{};
  std::function<bool(int ranks)> fits{};
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;                              // without the program's name
  std::vector<std::pair<std::string, std::string>> environment{};  // added to the host's
  std::vector<std::pair<std::string, std::string>> environment_here{};  // on this host alone
  // A run whose ranks are on one host, and which hands_over, may go on at another one: `reach`
  // begins to make that host ready, whose destruction ends it. Null: it stays.
  std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> reach{};
  // The same of this host, for a run that comes back to it: whether it has room. Null: it has.
  std::function<absl::Status(const MoveRequest&)> check_here{};
  std::function<void(const MoveOutcome&)> tell_here{};  // tells this host's daemon; may be null
  // How long the others may take to end by themselves once a rank has failed, and then after
  // SIGTERM, before they are killed. Between the two, the one that stopped all that have ended may
  // take the grace time too: it has the reason.
  absl::Duration settle_time = absl::Milliseconds(500);
  absl::Duration grace_time = absl::Seconds(3);
  // The same when a host is lost: nobody on the others notices, so they are not waited for.
  absl::Duration lost_grace_time = absl::Milliseconds(200);
  // Where rank 0's stderr and the launcher's own words go.
  std::function<void(const std::string&)> write_stderr;
  // Called once for each GEMINID_JOB_ID, when none of its ranks runs or will be started again.
  std::function<void(const std::string& job_id, int ranks)> at_end{};
};

// Starts the ranks with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and an id of
// the job, and waits for all of them. Rank 0's stderr is passed on as it comes; of the other ranks
// the last words are kept, and shown if they are the reason of a failure. SIGINT, SIGTERM and
// SIGHUP are passed on to the ranks, which may take their time to end; a second one kills them. If
// this process dies, the ranks are killed.
//
// Ranks whose host is lost count as failed before all others; they have no place to start again at.
//
// With restarts, a failure that another start may not meet again (a rank that was killed, lost its
// daemon or another rank) has the others end, and all ranks started again, who learn of it from
// training/launch/restarts.h; each time a line says so. A rank that has returned 0 says that all
// have done their part: what fails after that is said and no failure.
//
// Returns the exit code for this process: 0 if all ranks returned 0; the code of an end that all
// ranks agree on (128 plus a signal of those three, kExitDiverged); 128 plus the signal that was
// passed on, if it killed them; else that of the rank that failed first, 1 if a signal killed it. A
// rank that was killed counts as the reason before one that returned an error; one that misses
// another (kExitUnavailable) comes after these, and one that says it was only stopped
// (kExitAborted) last. No process is left when this returns.
//
// Ranks that have handed over their state (HandoverMemory::Complete) are followed by as many as it
// is for, in a job of another id, whichever way they ended. Where those fail while the state is
// still there, they are started again, and then as many as before; where they cannot be started,
// as many as before are at once. A signal that came too late for an end is told to each start.
//
// Ranks that want to go on at another host (MoveRequest) are answered while they train, when that
// host is ready or cannot have them. Their state is carried there, and the next ranks start there.
// Where they do not come to their second step, the run goes on where it was before, from the state
// that is there still. A host that is lost later ends the run.
//
// `restarts_made` gets how often they were started again, with those before.
//
// Blocks. Call it from the main thread, before other threads exist: it blocks those signals.
absl::StatusOr<int> Launch(const LaunchOptions& options, int* restarts_made = nullptr);

// Whether this process is a rank that Launch started, and its launcher still lives.
bool IsLaunched();

// What ps and top show of a rank: as its command line, "geminid-train: rank 1"; and as its name,
// which has 15 characters at most, "geminid-rank 1".
std::string RankName(int rank);
std::string ShortRankName(int rank);

// `arguments` without any of the options `names` (each of which takes a value).
std::vector<std::string> WithoutOptions(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& names);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_LAUNCHER_H_
