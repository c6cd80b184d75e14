// Requests that a job go on as another number of ranks, or at another host: from whoever asks to
// the job's first rank, and what became of them. The daemon carries them and does nothing else: the
// ranks decide.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_SCALE_REQUESTS_H_
#define GEMINID_DAEMON_SERVICE_CALLS_SCALE_REQUESTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/basics/time.h"
#include "geminid/v1/job.pb.h"

namespace geminid::service {

// Thread-safe. Requests end with the daemon: who asked asks again.
class ScaleRequests {
 public:
  struct Job {
    std::string tenant;
    std::string name;
    bool operator==(const Job&) const = default;
  };
  using Sessions = std::map<uint64_t, Job>;  // that are attached

  // Requests of a tenant that are done or refused and can still be looked at; the oldest go first.
  static constexpr size_t kMostEnded = 64;
  // As names of hosts have, with a user before it.
  static constexpr size_t kLongestHost = 255;
  // A request of a job that has had no rank, and of which nobody spoke, for so long has failed.
  static constexpr core::Duration kSilence = core::Duration::Seconds(60);

  ScaleRequests();

  // INVALID_ARGUMENT, NOT_FOUND or FAILED_PRECONDITION, in words for whoever asks.
  absl::StatusOr<v1::ScaleRequest> Ask(const std::string& tenant, const v1::ScaleJobRequest& wanted,
                                       const Sessions& attached, core::Time now);
  absl::StatusOr<v1::ScaleRequest> Get(uint64_t number, const Sessions& attached, core::Time now);
  v1::OfferScaleResponse Offer(const std::string& tenant, const v1::OfferScaleRequest& offer,
                               const Sessions& attached, core::Time now);
  // Of a request that ranks have taken, by the launcher of a job that has none attached. It stays
  // known from then on for as long as after a word of a rank. NOT_FOUND: there is no such request.
  absl::Status Tell(const std::string& tenant, const v1::OfferScaleRequest& told,
                    const Sessions& attached, core::Time now);
  // Whether its ranks have taken a request and are between two groups: FAILED_PRECONDITION with the
  // request's words.
  absl::Status CheckHasRanks(const Job& job, const Sessions& attached, core::Time now);
  // Whether it was asked for another number, and that is neither done nor refused.
  bool IsAsked(const Job& job, const Sessions& attached, core::Time now);
  // The job is ended on request: its ranks answer no more.
  void RefuseOf(const Job& job);

  // A job that the daemon may change, as it said last.
  struct Shared {
    Job job;
    uint32_t ranks = 0;
    v1::OfferedShare share;
    std::string why_not;  // it cannot be changed now; empty: it can
  };
  // Runs whose name another run has too are left out.
  std::vector<Shared> SharedJobs(const Sessions& attached, core::Time now);
  // The job's ranks have not taken it yet, and shall not; else nothing happens.
  void Withdraw(uint64_t number, const std::string& why);

 private:
  struct Offered {
    std::string tenant;
    std::string job;
    std::string run;
    uint32_t ranks = 0;
    std::string why_not;
    bool can_move = false;
    std::optional<v1::OfferedShare> share;
  };
  struct Request {
    v1::ScaleRequest message;
    std::string run;       // that was asked
    uint64_t session = 0;  // the last that was heard of it
    core::Time heard;
  };

  bool Waits(const Request& request, core::Time now) const;
  // Refuses requests for which nothing is left to wait, and forgets what need not be remembered.
  void Forget(const Sessions& attached, core::Time now);
  // Of that tenant and name, unless it ended.
  Request* Pending(const std::string& tenant, const std::string& job);

  std::mutex mutex_;
  // A random number at first: ranks may still have words about a request to the daemon before.
  uint64_t last_;
  std::map<uint64_t, Offered> offers_;    // by session
  std::map<uint64_t, Request> requests_;  // by number
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_SCALE_REQUESTS_H_
