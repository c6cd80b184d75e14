// What the first rank of a job says to the daemon about the number of its ranks, and hears of it.
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

// One thread. Calls take at most the timeout. Where there is no daemon they fail: what they say is
// said again later. EndRun waits for a daemon that restarts.
class JobScaling {
 public:
  JobScaling(const std::string& socket, absl::Duration timeout);
  ~JobScaling();
  JobScaling(const JobScaling&) = delete;
  JobScaling& operator=(const JobScaling&) = delete;

  // What became of a request.
  struct Outcome {
    uint64_t number = 0;  // 0: nothing new
    std::string state{};  // taken, done or refused
    std::string message{};
  };
  // What the job would do with a number of ranks.
  struct Row {
    int ranks = 0;
    uint64_t device_bytes = 0;  // of all of them
    double goodput = 0;
  };
  // The daemon may choose one of the rows by itself.
  struct Share {
    std::vector<Row> rows{};
    std::string why_not{};  // there are none now, for this reason
    double remaining = 0;   // work, in the unit of the rows
  };
  struct Offer {
    uint64_t session = 0;
    std::string job{};
    int ranks = 1;
    std::string why_not{};  // it takes no requests, for this reason
    Outcome outcome{};
    std::optional<Share> share{};
  };
  struct Asked {
    uint64_t number = 0;  // 0: nothing
    int ranks = 0;
  };
  absl::StatusOr<Asked> Make(const Offer& offer);

  // A device of the daemon, as its ledger has it.
  struct Device {
    uint32_t number = 0;
    uint64_t free_bytes = 0;
    uint64_t capacity_bytes = 0;
  };
  absl::StatusOr<std::vector<Device>> GetDevices();

  // A rank of a run that the daemon has: of a process that lives, or left by one that died.
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
  // The caller's own. Sessions of other runs of the job are not among them.
  absl::StatusOr<std::vector<Rank>> GetRanks(const std::string& job, const std::string& run);

  // Ends what an earlier group of ranks of this job has left, all of whose processes have ended.
  absl::Status EndRun(const std::string& job, const std::string& run);

 private:
  struct Stubs;
  const absl::Duration timeout_;
  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_JOB_SCALING_H_
