// Shares the node among the jobs that let the daemon choose their number of ranks. Looks at the
// jobs, lets NodeSharing decide, and makes its requests in the same way as 'geminictl scale'.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_JOB_SHARING_H_
#define GEMINID_DAEMON_SERVICE_CALLS_JOB_SHARING_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/engine/engine.h"
#include "daemon/planner/sharing/node_sharing.h"
#include "daemon/service/calls/scale_requests.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/tenant_log.h"
#include "daemon/service/watch/vitals.h"
#include "geminid/v1/job.pb.h"

namespace geminid::service {

struct JobSharingOptions {
  absl::Duration interval = absl::Seconds(60);  // between decisions; 0: the daemon changes no job
  uint32_t ranks = 0;           // for which the node has room; 0: one per GPU, or per processor
  core::Duration queue_ageing;  // waiting time that is worth a level of priority
};

// All jobs of the node, in the form that NodeSharing takes.
struct NodeView {
  planner::Share room;
  std::vector<planner::NodeJob> jobs;
};
// `shared` are the jobs whose ranks the daemon may change. The memory and ranks of all other jobs
// are taken, except those for which jobs wait. `by_people` are the jobs whose number a person asked
// for.
NodeView ViewOf(const core::Engine& engine, const std::vector<ScaleRequests::Shared>& shared,
                const std::set<planner::JobKey>& by_people, const JobSharingOptions& options,
                core::Time now);

// Thread-safe. It has no thread: the offers of jobs drive it.
class JobSharing {
 public:
  // The pointers must outlive this object.
  JobSharing(const JobSharingOptions& options, SessionHub* hub, ScaleRequests* requests,
             TenantLog* log, SharingCounts* counts);

  // Call it after an offer of a job that has this many ranks and may be changed.
  void Step(const planner::JobKey& job, uint64_t ranks, const ScaleRequests::Sessions& attached,
            core::Time now);
  // Call it before each offer. Notes the runs that ended and the requests of people that were
  // refused.
  void Follow(const ScaleRequests::Sessions& attached, core::Time now);
  // Notes that a person asked for a number of ranks, with the request `number`. The number holds
  // until Release or the end of the run, unless the ranks refuse the request.
  void Hold(const planner::JobKey& job, uint64_t number, const ScaleRequests::Sessions& attached,
            core::Time now);
  // A person asks for the number that the job has. False: the job has another, or is not shared.
  bool Keep(const planner::JobKey& job, uint64_t ranks, const ScaleRequests::Sessions& attached,
            core::Time now);
  // Gives the choice back to the daemon. False: the job is not shared.
  bool Release(const planner::JobKey& job, const ScaleRequests::Sessions& attached, core::Time now);
  // Adds the state of sharing to each job.
  void Describe(const ScaleRequests::Sessions& attached, core::Time now,
                v1::ListJobsResponse* jobs);

 private:
  struct Run {
    std::set<uint64_t> sessions;  // that the run had last
    core::Time seen;              // when it had sessions, or was between two groups of them
    bool held = false;            // at a number that a person asked for
    bool was_held = false;        // before the request that is not settled
    uint64_t asked = 0;           // the number of that request; 0: there is none
  };

  Run& RunOf(const planner::JobKey& job, const ScaleRequests::Sessions& attached, core::Time now);
  void FollowRuns(const ScaleRequests::Sessions& attached, core::Time now);
  void SettleHold(Run* run, const ScaleRequests::Sessions& attached, core::Time now);
  // Whether the last request has ended, or the daemon has given up waiting for it.
  bool IsSettled(const ScaleRequests::Sessions& attached, core::Time now);
  void Ask(const planner::RanksRequest& request, const ScaleRequests::Sessions& attached,
           core::Time now);
  void End(bool done, const std::string& message, core::Time now);

  const JobSharingOptions options_;
  SessionHub* const hub_;
  ScaleRequests* const requests_;
  TenantLog* const log_;
  SharingCounts* const counts_;
  std::mutex mutex_;
  // Guarded by mutex_.
  planner::NodeSharing sharing_;
  std::map<planner::JobKey, Run> runs_;  // that offered, or whose number a person asked for
  uint64_t number_ = 0;                  // of the daemon's request that is not settled
  core::Time asked_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_JOB_SHARING_H_
