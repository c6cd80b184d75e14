// Exchange of a job's first rank with the daemon about the job's number of ranks.
#ifndef GEMINID_CLIENT_SRC_JOB_SCALING_H_
#define GEMINID_CLIENT_SRC_JOB_SCALING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace geminid {

// Used by one thread. Calls take at most the timeout. Without a daemon they fail, and the caller
// repeats them later. EndRun waits for a daemon that restarts.
class JobScaling {
 public:
  JobScaling(const std::string& socket, absl::Duration timeout);
  ~JobScaling();
  JobScaling(const JobScaling&) = delete;
  JobScaling& operator=(const JobScaling&) = delete;

  // The outcome of a request.
  struct Outcome {
    uint64_t number = 0;  // 0: nothing new
    std::string state{};  // taken, done or refused
    std::string message{};
    bool has_shrunk = false;  // news: the job goes on with fewer ranks after a death
  };
  // What the job would achieve with this number of ranks.
  struct Row {
    int ranks = 0;
    uint64_t device_bytes = 0;  // of all of them
    double goodput = 0;
  };
  // The daemon may choose one of the rows by itself.
  struct Share {
    std::vector<Row> rows{};
    std::string why_not{};  // why there are no rows now
    double remaining = 0;   // work, in the unit of the rows
  };
  struct Offer {
    uint64_t session = 0;
    std::string job{};
    std::string run{};  // differs between runs of the same job name
    int ranks = 1;
    std::string why_not{};  // why the job takes no requests; empty: it takes them
    Outcome outcome{};
    std::optional<Share> share{};
  };
  struct RankChange {
    uint64_t number = 0;  // 0: there is no request
    int ranks = 0;
    std::string host{};  // where to go on; empty: where it is
  };
  absl::StatusOr<RankChange> Make(const Offer& offer);
  // Of the job's launcher, while no rank of it is attached. NOT_FOUND: nobody asks for the outcome.
  // ABORTED: a person has ended the job.
  absl::Status Tell(const std::string& job, const Outcome& outcome);

  // A device of the daemon, from its ledger.
  struct Device {
    uint32_t number = 0;
    uint64_t free_bytes = 0;
    uint64_t capacity_bytes = 0;
  };
  absl::StatusOr<std::vector<Device>> GetDevices();
  // What a job that comes may have.
  struct Room {
    std::vector<Device> devices{};
    uint64_t free_host_bytes = 0;
    bool drained = false;  // no job may come
  };
  absl::StatusOr<Room> GetRoom();

  // A rank of a run that the daemon has, of a living process or retained after the process died.
  struct Rank {
    int rank = 0;
    int world_size = 1;
    uint64_t step = 0;
    uint32_t device = 0;
    uint64_t device_bytes = 0;  // of its arena
    uint64_t host_bytes = 0;
    int64_t pid = 0;
    bool is_left = false;  // its process has died
  };
  // The ranks of the caller's job and run; other runs of the job are left out.
  absl::StatusOr<std::vector<Rank>> GetRanks(const std::string& job, const std::string& run);

  // Ends the sessions that an earlier group of this job's ranks left. All its processes have ended.
  absl::Status EndRun(const std::string& job, const std::string& run);
  // Whether a person has ended this run within the last minute. A daemon of an older version does
  // not know.
  absl::StatusOr<bool> WasEnded(const std::string& job, const std::string& run);

 private:
  struct Stubs;
  absl::StatusOr<Room> GetMemory();  // without the rest
  const std::string socket_;
  const absl::Duration timeout_;
  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_JOB_SCALING_H_
