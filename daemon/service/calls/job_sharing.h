// Shares the node among the jobs that let the daemon choose their number of ranks: looks at the
// jobs, has NodeSharing decide, and makes its requests by the way of 'geminictl scale'.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_JOB_SHARING_H_
#define GEMINID_DAEMON_SERVICE_CALLS_JOB_SHARING_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/engine/engine.h"
#include "daemon/planner/sharing/node_sharing.h"
#include "daemon/service/calls/scale_requests.h"
#include "daemon/service/sessions/hub.h"
#include "daemon/service/tenants/tenant_log.h"
#include "daemon/service/watch/vitals.h"
#include "geminid/v1/job.pb.h"

namespace geminid::service {

struct JobSharingOptions {
  absl::Duration interval = absl::Seconds(60);  // between looks; 0: nothing is ever changed
  uint32_t ranks = 0;           // that the node has room for; 0: one per GPU, or per processor
  core::Duration queue_ageing;  // waiting that is worth a level of priority
};

// What all jobs of the node are, as NodeSharing takes it.
struct NodeView {
  planner::Share room;
  std::vector<planner::NodeJob> jobs;
};
// `shared`: of these jobs the daemon may change the ranks. The memory and ranks of all others are
// taken, but for what jobs wait for. `by_people`: whose number somebody asked for.
NodeView ViewOf(const core::Engine& engine, const std::vector<ScaleRequests::Shared>& shared,
                const std::set<planner::JobKey>& by_people, const JobSharingOptions& options,
                core::Time now);

// Thread-safe. It has no thread: jobs that offer drive it.
class JobSharing {
 public:
  // All that is pointed to outlives it.
  JobSharing(const JobSharingOptions& options, Hub* hub, ScaleRequests* requests, TenantLog* log,
             SharingCounts* counts);

  // After an offer of a job that has so many ranks and may be changed.
  void Step(const planner::JobKey& job, uint64_t ranks, const ScaleRequests::Sessions& attached,
            core::Time now);
  // Before each offer: sees which runs have ended and which requests of people were refused.
  void Follow(const ScaleRequests::Sessions& attached, core::Time now);
  // Somebody has asked for a number of ranks by a request, which stays until Release or the end of
  // the run, unless the ranks refuse it.
  void Hold(const planner::JobKey& job, uint64_t number, const ScaleRequests::Sessions& attached,
            core::Time now);
  // Somebody asks for the number that the job has. False: it has another, or is not shared.
  bool Keep(const planner::JobKey& job, uint64_t ranks, const ScaleRequests::Sessions& attached,
            core::Time now);
  // False: the job is not shared.
  bool Release(const planner::JobKey& job, const ScaleRequests::Sessions& attached, core::Time now);
  // Adds how the jobs stand.
  void Describe(const ScaleRequests::Sessions& attached, core::Time now,
                v1::ListJobsResponse* jobs);

 private:
  struct Run {
    std::set<uint64_t> sessions;  // that it had last
    core::Time seen;              // with sessions, or between two groups of them
    bool held = false;            // at a number that somebody asked for
    bool was_held = false;        // before the request that is not settled
    uint64_t asked = 0;           // that request; 0: there is none
  };

  Run& RunOf(const planner::JobKey& job, const ScaleRequests::Sessions& attached, core::Time now);
  void FollowRuns(const ScaleRequests::Sessions& attached, core::Time now);
  void SettleHold(Run* run, const ScaleRequests::Sessions& attached, core::Time now);
  // Whether the last request has ended, or is waited for no longer.
  bool IsSettled(const ScaleRequests::Sessions& attached, core::Time now);
  void Ask(const planner::RanksRequest& request, const ScaleRequests::Sessions& attached,
           core::Time now);
  void End(bool done, const std::string& message, core::Time now);

  const JobSharingOptions options_;
  Hub* const hub_;
  ScaleRequests* const requests_;
  TenantLog* const log_;
  SharingCounts* const counts_;
  std::mutex mutex_;
  // Guarded by mutex_.
  planner::NodeSharing sharing_;
  std::map<planner::JobKey, Run> runs_;  // that offered, or whose number somebody asked for
  uint64_t number_ = 0;                  // of the daemon's request that is not settled
  core::Time asked_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_JOB_SHARING_H_
