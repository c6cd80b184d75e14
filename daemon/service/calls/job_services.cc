#include "daemon/service/calls/job_services.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "daemon/os/log.h"
#include "daemon/os/process_place.h"

namespace geminid::service {
namespace {

// The tenant whose jobs the request names, if the caller may act on them.
absl::StatusOr<std::string> MayTouch(const Caller& caller, const std::string& tenant) {
  if (tenant.empty() || tenant == caller.identity.tenant) return caller.identity.tenant;
  if (caller.identity.is_operator) return tenant;
  return absl::PermissionDeniedError(
      absl::StrCat(caller.identity.tenant, " may not touch jobs of ", tenant,
                   "; only root and the user the daemon runs as may touch those of others"));
}

// Adds the session's memory to its job's sums.
void AddSession(const core::SessionSnapshot& session, std::map<uint32_t, uint64_t>* device_bytes,
                v1::JobInfo* job) {
  job->add_sessions(shm::Value(session.id));
  job->set_host_bytes(job->host_bytes() + session.host_bytes);
  if (session.arena_bytes > 0) (*device_bytes)[shm::Value(session.device)] += session.arena_bytes;
}

void SetDeviceBytes(const std::map<uint32_t, uint64_t>& device_bytes, v1::JobInfo* job) {
  for (const auto& [device, bytes] : device_bytes) {
    v1::JobDeviceBytes* line = job->add_device_bytes();
    line->set_device(device);
    line->set_bytes(bytes);
  }
}

v1::JobInfo JobMessage(const core::JobSnapshot& job,
                       const std::map<core::SessionId, core::SessionSnapshot>& sessions,
                       core::Time now) {
  v1::JobInfo message;
  message.set_job_id(core::Value(job.id));
  message.set_tenant(job.name.tenant);
  message.set_job(job.name.job);
  message.set_run(job.name.run);
  message.set_ranks_present(static_cast<uint32_t>(job.sessions.size()));
  message.set_ranks_expected(job.ranks);
  message.set_state(core::Name(job.standing.state));
  message.set_position(job.standing.position);
  message.set_reason(job.standing.reason);
  message.set_priority(job.priority);
  message.set_preemptible(job.preemptible);
  message.set_held(job.held);
  message.set_seconds_in_state((now - job.since).seconds());
  std::map<uint32_t, uint64_t> device_bytes;
  for (const core::SessionId id : job.sessions) {
    const auto session = sessions.find(id);
    if (session != sessions.end()) AddSession(session->second, &device_bytes, &message);
  }
  SetDeviceBytes(device_bytes, &message);
  return message;
}

// A job of sessions that did not ask for admission and have the same name.
v1::JobInfo UnaskedMessage(const std::vector<core::SessionSnapshot>& sessions, core::Time now) {
  v1::JobInfo message;
  const core::SessionSpec& spec = sessions.front().spec;
  message.set_tenant(spec.tenant);
  message.set_job(spec.job);
  core::Time oldest = now;
  std::optional<core::Time> until;  // the end of the last session that is kept
  uint32_t attached = 0;
  std::map<uint32_t, uint64_t> device_bytes;
  for (const core::SessionSnapshot& session : sessions) {
    AddSession(session, &device_bytes, &message);
    attached += session.state == core::SessionState::kAttached ? 1 : 0;
    oldest = std::min(oldest, session.opened_at);
    if (session.keep_until.has_value()) {
      until = std::max(until.value_or(*session.keep_until), *session.keep_until);
    }
  }
  SetDeviceBytes(device_bytes, &message);
  const int32_t local = spec.local_world_size > 0 ? spec.local_world_size : spec.world_size;
  message.set_ranks_present(attached);
  message.set_ranks_expected(std::max(static_cast<uint32_t>(local), attached));
  message.set_state(attached == 0 ? "kept" : "running");
  if (attached == 0 && until.has_value()) {
    message.set_reason(absl::StrCat("its ranks died; its memory is retained for ",
                                    std::ceil((*until - now).seconds()),
                                    " s, unless they come back or 'geminictl end' frees it"));
  }
  message.set_seconds_in_state((now - oldest).seconds());
  return message;
}

// Answers a request that needs no change.
absl::Status Answer(const planner::JobKey& job, const char* message, v1::ScaleRequest* response) {
  response->set_tenant(job.tenant);
  response->set_job(job.job);
  response->set_state("done");
  response->set_message(message);
  return absl::OkStatus();
}

// The sessions whose clients are alive.
ScaleRequests::Sessions AttachedIn(SessionHub* hub) {
  return hub->Inspect([](const core::Engine&, const Sessions& sessions) {
    ScaleRequests::Sessions attached;
    for (const auto& [id, session] : sessions) {
      if (session->ended()) continue;
      const core::SessionSpec& spec = session->spec();
      attached.emplace(shm::Value(id), ScaleRequests::Job{spec.tenant, spec.job});
    }
    return attached;
  });
}

// The process that started the session's process, as a pidfd; invalid: it is not known.
base::UniqueFd LauncherOf(SessionHub* hub, uint64_t number) {
  const SessionPtr session = hub->Inspect([&](const core::Engine&, const Sessions& sessions) {
    const auto found = sessions.find(shm::SessionId{number});
    return found == sessions.end() ? SessionPtr() : found->second;
  });
  if (session == nullptr || !session->pidfd().valid()) return {};
  return os::ParentOf(session->pid(), session->pidfd());
}

}  // namespace

v1::ListJobsResponse JobsMessage(const core::Engine& engine, core::Time now) {
  std::map<core::SessionId, core::SessionSnapshot> sessions;
  for (core::SessionSnapshot& session : engine.Sessions()) sessions[session.id] = session;
  v1::ListJobsResponse response;
  response.set_drained(engine.jobs().drained());
  std::set<core::SessionId> listed;
  for (const core::JobSnapshot& job : engine.jobs().Jobs()) {
    *response.add_jobs() = JobMessage(job, sessions, now);
    listed.insert(job.sessions.begin(), job.sessions.end());
  }
  std::map<std::pair<std::string, std::string>, std::vector<core::SessionSnapshot>> unasked;
  for (const auto& [id, session] : sessions) {
    if (!listed.contains(id)) unasked[{session.spec.tenant, session.spec.job}].push_back(session);
  }
  for (const auto& [name, of_name] : unasked) *response.add_jobs() = UnaskedMessage(of_name, now);
  return response;
}

void JobRpc::AddTo(std::vector<RpcMethod>* methods) {
  const auto add = [methods](const char* path, bool is_listing, bool is_long) {
    RpcMethod& method = methods->emplace_back();
    method.path = path;
    method.is_listing = is_listing;
    method.is_long = is_long;
    return &method;
  };
  ServeWith<v1::ListJobsRequest, v1::ListJobsResponse>(
      add("/geminid.v1.JobService/ListJobs", true, false),
      [this](const Caller&, const auto&, auto* response) { return List(response); });
  ServeWith<v1::DrainRequest, v1::DrainResponse>(
      add("/geminid.v1.JobService/Drain", false, false),
      [this](const Caller& caller, const auto& request, auto* response) {
        return Drain(caller, request, response);
      });
  ServeWith<v1::EvictJobRequest, v1::EvictJobResponse>(
      add("/geminid.v1.JobService/EvictJob", false, false),
      [this](const Caller& caller, const auto& request, auto* response) {
        return Evict(caller, request, response);
      });
  ServeWith<v1::EndJobRequest, v1::EndJobResponse>(
      add("/geminid.v1.JobService/EndJob", false, true),
      [this](const Caller& caller, const auto& request, auto* response) {
        return End(caller, request, response);
      });
  ServeWith<v1::WasEndedRequest, v1::WasEndedResponse>(
      add("/geminid.v1.JobService/WasEnded", false, false),
      [this](const Caller& caller, const auto& request, auto* response) {
        return WasEnded(caller, request, response);
      });
  ServeWith<v1::ScaleJobRequest, v1::ScaleRequest>(
      add("/geminid.v1.JobService/ScaleJob", false, false),
      [this](const Caller& caller, const auto& request, auto* response) {
        return Scale(caller, request, response);
      });
  ServeWith<v1::GetScaleRequest, v1::ScaleRequest>(
      add("/geminid.v1.JobService/GetScale", false, false),
      [this](const Caller& caller, const auto& request, auto* response) {
        return GetScale(caller, request, response);
      });
  RpcMethod* const offer = add("/geminid.v1.JobService/OfferScale", false, true);
  offer->bounds.items = planner::kMostRowsOfJob + 8;  // and the offer's own texts
  ServeWith<v1::OfferScaleRequest, v1::OfferScaleResponse>(
      offer, [this](const Caller& caller, const auto& request, auto* response) {
        return OfferScale(caller, request, response);
      });
}

absl::Status JobRpc::List(v1::ListJobsResponse* response) {
  *response = hub_->Inspect(
      [](const core::Engine& engine, const auto&) { return JobsMessage(engine, Now()); });
  sharing_.Describe(AttachedIn(hub_), Now(), response);
  return absl::OkStatus();
}

absl::Status JobRpc::Drain(const Caller& caller, const v1::DrainRequest& request,
                           v1::DrainResponse* response) {
  if (!caller.identity.is_operator) {
    return absl::PermissionDeniedError(absl::StrCat(
        caller.identity.tenant, " may not drain the daemon; root and the user it runs as may"));
  }
  hub_->Drain(!request.undo());
  log_->Write(caller.identity.tenant, os::LogLevel::kInfo,
              request.undo() ? "draining ended: new jobs are admitted again"
                             : "draining: no new job is admitted",
              {{"by", caller.identity.tenant}});
  const v1::ListJobsResponse jobs = hub_->Inspect(
      [](const core::Engine& engine, const auto&) { return JobsMessage(engine, Now()); });
  response->set_drained(jobs.drained());
  for (const v1::JobInfo& job : jobs.jobs()) {
    const bool waits = job.state() == "gathering" || job.state() == "queued";
    waits ? response->set_queued(response->queued() + 1) : response->set_jobs(response->jobs() + 1);
  }
  return absl::OkStatus();
}

absl::Status JobRpc::Evict(const Caller& caller, const v1::EvictJobRequest& request,
                           v1::EvictJobResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(const std::string tenant, MayTouch(caller, request.tenant()));
  GEMINID_ASSIGN_OR_RETURN(const uint32_t held,
                           hub_->HoldJobs(tenant, request.job(), !request.undo()));
  log_->Write(caller.identity.tenant, os::LogLevel::kInfo,
              request.undo() ? "job let go" : "job evicted",
              {{"tenant", tenant}, {"job", request.job()}, {"by", caller.identity.tenant}});
  response->set_jobs(held);
  return absl::OkStatus();
}

absl::Status JobRpc::End(const Caller& caller, const v1::EndJobRequest& request,
                         v1::EndJobResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(const std::string tenant, MayTouch(caller, request.tenant()));
  absl::StatusOr<SessionHub::EndedJob> ended =
      hub_->EndJob(tenant, request.job(), request.run(), request.now());
  const ScaleRequests::Job job = {tenant, request.job()};
  const bool is_of_all_runs = request.run().empty();
  if (absl::IsNotFound(ended.status()) && is_of_all_runs) {
    GEMINID_ASSIGN_OR_RETURN(const std::string moved,
                             scale_requests_.EndWithoutRanks(job, AttachedIn(hub_), Now()));
    if (!moved.empty()) return EndedOnItsWay(caller, job, moved, response);
    GEMINID_RETURN_IF_ERROR(scale_requests_.CheckHasNotLeft(job, AttachedIn(hub_)));
  }
  if (!ended.ok()) return ended.status();
  if (is_of_all_runs) {
    scale_requests_.RefuseOf(job);
    for (const std::string& run : ended->runs) ended_runs_.Note({tenant, job.name, run}, Now());
  }
  hub_->Destroy(
      std::move(ended->garbage));  // so that the memory is free when the caller gets the answer
  for (const shm::SessionId session : ended->closed) on_ended_(session);
  log_->Write(caller.identity.tenant, os::LogLevel::kInfo, "job ended by request",
              {{"tenant", tenant},
               {"job", request.job()},
               {"sessions", absl::StrCat(ended->sessions.size())},
               {"memory", base::FormatBytes(ended->bytes)},
               {"at_once", request.now() ? "yes" : "no"},
               {"by", caller.identity.tenant}});
  response->set_jobs(1);
  response->set_sessions(static_cast<uint32_t>(ended->sessions.size()));
  response->set_bytes(ended->bytes);
  return absl::OkStatus();
}

absl::Status JobRpc::EndedOnItsWay(const Caller& caller, const ScaleRequests::Job& job,
                                   const std::string& host, v1::EndJobResponse* response) {
  log_->Write(
      caller.identity.tenant, os::LogLevel::kInfo, "job ended by request on its way to a host",
      {{"tenant", job.tenant}, {"job", job.name}, {"host", host}, {"by", caller.identity.tenant}});
  response->set_jobs(1);
  response->set_host(host);
  return absl::OkStatus();
}

absl::Status JobRpc::WasEnded(const Caller& caller, const v1::WasEndedRequest& request,
                              v1::WasEndedResponse* response) {
  response->set_ended(
      ended_runs_.Has({caller.identity.tenant, request.job(), request.run()}, Now()));
  return absl::OkStatus();
}

absl::Status JobRpc::Scale(const Caller& caller, const v1::ScaleJobRequest& request,
                           v1::ScaleRequest* response) {
  GEMINID_ASSIGN_OR_RETURN(const std::string tenant, MayTouch(caller, request.tenant()));
  const planner::JobKey job = {tenant, request.job()};
  if (!request.host().empty()) return Move(caller, tenant, request, response);
  if (request.ranks() == 0) return ShareAgain(job, response);
  const ScaleRequests::Sessions attached = AttachedIn(hub_);
  if (sharing_.Keep(job, request.ranks(), attached, Now())) {
    return Answer(job, "keeps the ranks that it has", response);
  }
  const bool drained = hub_->Inspect(
      [](const core::Engine& engine, const auto&) { return engine.jobs().drained(); });
  if (drained) {
    ++counts_->scales.refused;
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon drains, and would not admit the other ranks of job ", job.job,
                     "; ask again after 'geminictl drain --undo'"));
  }
  GEMINID_ASSIGN_OR_RETURN(v1::ScaleRequest asked,
                           scale_requests_.Ask(tenant, request, attached, Now()));
  sharing_.Hold(job, asked.number(), attached, Now());
  log_->Write(caller.identity.tenant, os::LogLevel::kInfo, "job asked to change its ranks",
              {{"tenant", tenant},
               {"job", request.job()},
               {"ranks", absl::StrCat(request.ranks())},
               {"by", caller.identity.tenant}});
  *response = std::move(asked);
  return absl::OkStatus();
}

// A daemon that drains also lets a job move away: draining is the reason for the move.
absl::Status JobRpc::Move(const Caller& caller, const std::string& tenant,
                          const v1::ScaleJobRequest& request, v1::ScaleRequest* response) {
  GEMINID_ASSIGN_OR_RETURN(v1::ScaleRequest asked,
                           scale_requests_.Ask(tenant, request, AttachedIn(hub_), Now()));
  log_->Write(caller.identity.tenant, os::LogLevel::kInfo, "job asked to go to another host",
              {{"tenant", tenant},
               {"job", request.job()},
               {"host", request.host()},
               {"by", caller.identity.tenant}});
  *response = std::move(asked);
  return absl::OkStatus();
}

absl::Status JobRpc::ShareAgain(const planner::JobKey& job, v1::ScaleRequest* response) {
  const ScaleRequests::Sessions attached = AttachedIn(hub_);
  if (!sharing_.Release(job, attached, Now())) {
    const bool is_there = std::ranges::any_of(attached, [&](const auto& session) {
      return session.second.tenant == job.tenant && session.second.name == job.job;
    });
    if (!is_there) {
      return absl::NotFoundError(absl::StrCat("there is no job ", job.job, " of ", job.tenant));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon does not choose the ranks of job ", job.job, " of ", job.tenant,
                     "; start the run with --ranks MIN:MAX for that, or ask for a number"));
  }
  return Answer(job, "has as many ranks as the daemon finds best again", response);
}

absl::Status JobRpc::GetScale(const Caller& caller, const v1::GetScaleRequest& request,
                              v1::ScaleRequest* response) {
  GEMINID_ASSIGN_OR_RETURN(v1::ScaleRequest found,
                           scale_requests_.Get(request.number(), AttachedIn(hub_), Now()));
  GEMINID_RETURN_IF_ERROR(MayTouch(caller, found.tenant()).status());
  *response = std::move(found);
  return absl::OkStatus();
}

absl::Status JobRpc::OfferScale(const Caller& caller, const v1::OfferScaleRequest& request,
                                v1::OfferScaleResponse* response) {
  if (request.ranks() < 1 || request.ranks() > planner::kMostRanksOfJob) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job has 1 to ", planner::kMostRanksOfJob, " ranks, not ", request.ranks()));
  }
  const ScaleRequests::Sessions attached = AttachedIn(hub_);
  if (request.session() == 0) {
    return scale_requests_.Tell(caller.identity.tenant, request, attached, Now());
  }
  const auto found = attached.find(request.session());
  const ScaleRequests::Job job = {caller.identity.tenant, request.job()};
  if (found == attached.end() || found->second != job) {
    return absl::NotFoundError(absl::StrCat("session ", request.session(), " of ",
                                            caller.identity.tenant, " is none of job ",
                                            request.job()));
  }
  if (!scale_requests_.HasLauncher(request.session())) {
    scale_requests_.SetLauncher(request.session(), LauncherOf(hub_, request.session()));
  }
  sharing_.Follow(attached, Now());
  *response = scale_requests_.Offer(caller.identity.tenant, request, attached, Now());
  if (request.has_share()) {
    sharing_.Step({caller.identity.tenant, request.job()}, request.ranks(), attached, Now());
  }
  // A user has ended the job since: the ranks that the change has started end, too. Their launcher
  // ends them all where the first one has to.
  if (scale_requests_.IsOfEndedJob(request.number(), job)) {
    hub_->EndSession(shm::SessionId{request.session()});
  }
  return absl::OkStatus();
}

}  // namespace geminid::service
