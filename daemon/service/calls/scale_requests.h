// Requests that a job continue with another number of ranks, or on another host. The daemon carries
// a request from the person who asks to the job's first rank, and its result back. It does nothing
// else: the ranks decide.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_SCALE_REQUESTS_H_
#define GEMINID_DAEMON_SERVICE_CALLS_SCALE_REQUESTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/core/basics/time.h"
#include "daemon/service/watch/vitals.h"
#include "geminid/v1/job.pb.h"

namespace geminid::service {

// Thread-safe. Requests end with the daemon; a person must then ask again.
class ScaleRequests {
 public:
  struct Job {
    std::string tenant;
    std::string name;
    bool operator==(const Job&) const = default;
  };
  using Sessions = std::map<uint64_t, Job>;  // attached sessions by number

  // The most requests of a tenant that stay visible once done or refused. The oldest go first.
  static constexpr size_t kMostEnded = 64;
  // The length of the longest host name, with a user before it.
  static constexpr size_t kLongestHost = 255;
  // A request fails if its job has had no rank for this long and nothing was heard of it. It fails
  // at once if the process that started the ranks is known and has ended.
  static constexpr core::Duration kSilence = core::Duration::Seconds(60);

  // `counts` gets what becomes of the requests of people, and outlives this object. Null: nobody
  // counts.
  explicit ScaleRequests(JobCounts* counts = nullptr);

  enum class Asker { kPerson, kDaemon };
  // INVALID_ARGUMENT, NOT_FOUND or FAILED_PRECONDITION, in words for the person who asks. ABORTED:
  // the job's ranks have ended or died, and the process that started them still runs, so they may
  // start again; ask again.
  absl::StatusOr<v1::ScaleRequest> Ask(const std::string& tenant, const v1::ScaleJobRequest& wanted,
                                       const Sessions& attached, core::Time now,
                                       Asker asker = Asker::kPerson);
  absl::StatusOr<v1::ScaleRequest> Get(uint64_t number, const Sessions& attached, core::Time now);
  v1::OfferScaleResponse Offer(const std::string& tenant, const v1::OfferScaleRequest& offer,
                               const Sessions& attached, core::Time now);
  // The process that started the session's process, and would start the ranks that replace it, as a
  // pidfd. To be set before the session's first offer, if it can be seen from here.
  bool HasLauncher(uint64_t session);
  void SetLauncher(uint64_t session, base::UniqueFd launcher);
  // For the launcher of a job that has no rank attached: reports on a request that ranks have
  // taken. The request then stays known for as long as after a report of a rank. NOT_FOUND: there
  // is no such request. ABORTED: a person wants the job ended. The launcher ends the run, and then
  // reports "ended". A launcher whose run has arrived reports "done", and the job goes on there.
  absl::Status Tell(const std::string& tenant, const v1::OfferScaleRequest& told,
                    const Sessions& attached, core::Time now);
  // A person ends a job that has no session. FAILED_PRECONDITION with the request's words: the
  // job's ranks have taken a request and are between two groups. If they move, the launcher hears
  // of the end when it reports next. After that, one call returns the host to which they moved.
  // Empty: the job has no change in progress.
  absl::StatusOr<std::string> EndWithoutRanks(const Job& job, const Sessions& attached,
                                              core::Time now);
  // NOT_FOUND, naming the host, if the last request moved the job away and it has no rank here.
  absl::Status CheckHasNotLeft(const Job& job, const Sessions& attached);
  // Whether the job was asked for another number, and the request is neither done nor refused.
  bool IsAsked(const Job& job, const Sessions& attached, core::Time now);
  // The job is ended on request: its ranks will not answer.
  void RefuseOf(const Job& job);
  // Whether RefuseOf ended the job while this request was in progress. The ranks that the change
  // starts after that report on the request, and have to be ended, too.
  bool IsOfEndedJob(uint64_t number, const Job& job);

  // A job whose ranks the daemon may change, as the job reported last.
  struct Shared {
    Job job;
    uint32_t ranks = 0;
    v1::OfferedShare share;
    std::string why_not;  // why the job cannot be changed now; empty: it can
  };
  // Omits runs that share their name with another run.
  std::vector<Shared> SharedJobs(const Sessions& attached, core::Time now);
  // Withdraws the request if the job's ranks have not taken it yet.
  void Withdraw(uint64_t number, const std::string& why);

 private:
  struct OfferedRun {
    std::string tenant;
    std::string job;
    std::string run;
    uint32_t ranks = 0;
    std::string why_not;
    bool can_move = false;
    bool has_shrunk = false;  // after a death
    std::optional<v1::OfferedShare> share;
  };
  using Launcher = std::shared_ptr<const base::UniqueFd>;
  struct Request {
    v1::ScaleRequest message;
    std::string run;       // the run that was asked
    uint64_t session = 0;  // the session that reported last
    Launcher launcher;     // of that session; null: it is not known
    core::Time heard;
    Asker asker = Asker::kPerson;
    bool job_ended = false;   // on request, before the change was done
    bool end_wanted = false;  // by a person; the launcher that moves the job has not ended it yet
    bool end_heard = false;   // by the launcher; the person has not heard it yet
  };

  // Notes the launcher of a job whose first rank is gone.
  void NoteGone(uint64_t session, const OfferedRun& offer);
  absl::Status CheckStartsAgain(const Job& job, const Sessions& attached) const;
  bool Waits(const Request& request, core::Time now) const;
  // Returns the offer of the job that is to change.
  absl::StatusOr<const std::pair<const uint64_t, OfferedRun>*> Choose(
      const std::string& tenant, const v1::ScaleJobRequest& wanted, const Sessions& attached);
  // Notes a request to the job that has made this offer.
  v1::ScaleRequest Begin(const v1::ScaleJobRequest& wanted,
                         const std::pair<const uint64_t, OfferedRun>& offer, core::Time now,
                         Asker asker);
  // Counts the outcome if `state` is one.
  void Set(const std::string& state, const std::string& message, Request* request);
  void Refuse(const std::string& why, Request* request);
  RequestCounts* CountsOf(const std::string& host) const;
  Launcher LauncherOf(uint64_t session) const;
  // Refuses requests for which there is nothing left to wait, and deletes requests that are too
  // old.
  void Forget(const Sessions& attached, core::Time now);
  // The request of that tenant and job that has not ended.
  Request* Pending(const std::string& tenant, const std::string& job);

  JobCounts* const counts_;
  std::mutex mutex_;
  // A random number at first, because ranks may still report on a request to an earlier daemon.
  uint64_t last_;
  std::map<uint64_t, OfferedRun> offers_;   // by session
  std::map<uint64_t, Launcher> launchers_;  // by session
  // By tenant and job: the launchers of jobs that took requests, and whose first rank is gone.
  std::map<std::pair<std::string, std::string>, Launcher> gone_;
  std::map<uint64_t, Request> requests_;  // by number
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_SCALE_REQUESTS_H_
