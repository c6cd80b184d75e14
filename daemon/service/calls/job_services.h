// The gRPC methods for several training jobs on one node: list running and waiting jobs, hold,
// scale or end a job, and drain the node.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_JOB_SERVICES_H_
#define GEMINID_DAEMON_SERVICE_CALLS_JOB_SERVICES_H_

#include <functional>
#include <string>
#include <vector>

#include "daemon/service/calls/ended_runs.h"
#include "daemon/service/calls/job_sharing.h"
#include "daemon/service/calls/rpc_method.h"
#include "daemon/service/calls/scale_requests.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/tenant_log.h"
#include "geminid/v1/job.pb.h"

namespace geminid::service {

class JobRpc {
 public:
  // `on_ended` is called on the worker's thread after a session has ended.
  JobRpc(SessionHub* hub, TenantLog* log, const JobSharingOptions& sharing, JobCounts* counts,
         std::function<void(shm::SessionId)> on_ended)
      : hub_(hub),
        log_(log),
        on_ended_(std::move(on_ended)),
        counts_(counts),
        scale_requests_(counts),
        sharing_(sharing, hub, &scale_requests_, log, &counts->sharing) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status List(v1::ListJobsResponse* response);
  absl::Status Drain(const Caller& caller, const v1::DrainRequest& request,
                     v1::DrainResponse* response);
  absl::Status Evict(const Caller& caller, const v1::EvictJobRequest& request,
                     v1::EvictJobResponse* response);
  absl::Status End(const Caller& caller, const v1::EndJobRequest& request,
                   v1::EndJobResponse* response);
  absl::Status EndedOnItsWay(const Caller& caller, const ScaleRequests::Job& job,
                             const std::string& host, v1::EndJobResponse* response);
  absl::Status WasEnded(const Caller& caller, const v1::WasEndedRequest& request,
                        v1::WasEndedResponse* response);
  absl::Status Scale(const Caller& caller, const v1::ScaleJobRequest& request,
                     v1::ScaleRequest* response);
  absl::Status Move(const Caller& caller, const std::string& tenant,
                    const v1::ScaleJobRequest& request, v1::ScaleRequest* response);
  absl::Status ShareAgain(const planner::JobKey& job, v1::ScaleRequest* response);
  absl::Status GetScale(const Caller& caller, const v1::GetScaleRequest& request,
                        v1::ScaleRequest* response);
  absl::Status OfferScale(const Caller& caller, const v1::OfferScaleRequest& request,
                          v1::OfferScaleResponse* response);

  SessionHub* const hub_;
  TenantLog* const log_;
  const std::function<void(shm::SessionId)> on_ended_;
  JobCounts* const counts_;
  ScaleRequests scale_requests_;
  EndedRuns ended_runs_;
  JobSharing sharing_;
};

// All jobs. Jobs that asked for admission come first, in the order of their arrival; then the
// others by name.
v1::ListJobsResponse JobsMessage(const core::Engine& engine, core::Time now);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_JOB_SERVICES_H_
