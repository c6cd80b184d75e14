#include "daemon/service/calls/client_services.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/os/log.h"
#include "daemon/planner/make_plan.h"
#include "daemon/service/calls/hello.h"
#include "daemon/service/sessions/plan_messages.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {
namespace {

// A larger weight has no meaning beside weights of 1, and sums of asks must not overflow.
constexpr uint32_t kMaxWeight = 1000;
constexpr uint64_t kMaxHostAsk = uint64_t{1} << 46;

// All these methods need a token and may take long.
RpcMethod Method(const char* path, const RpcBounds& bounds = {}) {
  RpcMethod method;
  method.path = path;
  method.needs_token = true;
  method.is_long = true;
  method.bounds = bounds;
  return method;
}

absl::StatusOr<std::vector<core::ChunkSpec>> SpecsOf(const v1::AllocateChunksRequest& request) {
  if (request.chunks_size() > kMaxChunksPerCall) {
    return absl::InvalidArgumentError(absl::StrCat(request.chunks_size(), " chunks in one call; ",
                                                   kMaxChunksPerCall, " are allowed"));
  }
  std::vector<core::ChunkSpec> specs;
  specs.reserve(static_cast<size_t>(request.chunks_size()));
  for (const v1::ChunkSpec& chunk : request.chunks()) {
    if (chunk.kind() < 0 || chunk.kind() > v1::ChunkKind_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(
          "chunk '", chunk.name(), "': kind ", static_cast<int>(chunk.kind()), " is not known"));
    }
    specs.push_back({.name = chunk.name(),
                     .kind = static_cast<shm::ChunkKind>(chunk.kind()),
                     .bytes = chunk.bytes(),
                     .has_home = chunk.has_home()});
  }
  return specs;
}

}  // namespace

void SessionRpc::AddTo(std::vector<RpcMethod>* methods) {
  RpcMethod create = Method("/geminid.v1.SessionService/CreateArena");
  ServeWith<v1::CreateArenaRequest, v1::CreateArenaResponse>(
      &create, [this](const Caller& caller, const auto& request, auto* response) {
        return CreateArena(caller, request, response);
      });
  methods->push_back(std::move(create));
  RpcMethod admit = Method("/geminid.v1.SessionService/Admit");
  admit.is_long = false;
  ServeWith<v1::AdmitRequest, v1::AdmitResponse>(
      &admit, [this](const Caller& caller, const auto& request, auto* response) {
        return Admit(caller, request, response);
      });
  methods->push_back(std::move(admit));
  RpcMethod release = Method("/geminid.v1.SessionService/ReleaseArena");
  ServeWith<v1::ReleaseArenaRequest, v1::ReleaseArenaResponse>(
      &release, [this](const Caller& caller, const auto& request, auto*) {
        return hub_->ReleaseArena(caller.session, request.again());
      });
  methods->push_back(std::move(release));
  RpcMethod share = Method("/geminid.v1.SessionService/GetHostShare");
  share.is_long = false;
  ServeWith<v1::GetHostShareRequest, v1::GetHostShareResponse>(
      &share, [this](const Caller& caller, const auto&, auto* response) {
        return GetHostShare(caller, response);
      });
  methods->push_back(std::move(share));
  RpcMethod detach = Method("/geminid.v1.SessionService/Detach");
  ServeWith<v1::DetachRequest, v1::DetachResponse>(
      &detach, [this](const Caller& caller, const auto&, auto*) { return Detach(caller); });
  methods->push_back(std::move(detach));
}

absl::Status SessionRpc::CreateArena(const Caller& caller, const v1::CreateArenaRequest& request,
                                     v1::CreateArenaResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(SessionHub::CreatedArena made,
                           hub_->CreateArena(caller.session, request.bytes(), request.again()));
  response->set_bytes(made.bytes);
  response->set_slabs(made.slabs);
  return absl::OkStatus();
}

absl::Status SessionRpc::Admit(const Caller& caller, const v1::AdmitRequest& request,
                               v1::AdmitResponse* response) {
  if (request.run().size() >= shm::kNameBytes || request.weight() > kMaxWeight ||
      request.ranks() > static_cast<uint32_t>(kMaxWorldSize)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a run's name of ", request.run().size(), " characters, weight ", request.weight(), ", ",
        request.ranks(), " ranks; at most ", shm::kNameBytes - 1, ", ", kMaxWeight, " and ",
        kMaxWorldSize, " are allowed"));
  }
  const core::RankRequest ask = {.ranks = request.ranks(),
                                 .priority = request.priority(),
                                 .device_bytes = request.device_bytes(),
                                 .host_bytes = std::min(request.host_bytes(), kMaxHostAsk),
                                 .preemptible = request.preemptible(),
                                 .may_wait = request.may_wait()};
  GEMINID_ASSIGN_OR_RETURN(
      const core::JobStatus standing,
      hub_->Admit(caller.session, request.run(), ask, std::max<uint32_t>(request.weight(), 1)));
  response->set_admitted(standing.state == core::JobState::kRunning);
  response->set_state(core::Name(standing.state));
  response->set_position(standing.position);
  response->set_reason(standing.reason);
  return absl::OkStatus();
}

absl::Status SessionRpc::GetHostShare(const Caller& caller, v1::GetHostShareResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(const uint64_t bytes, hub_->HostShare(caller.session));
  response->set_bytes(bytes);
  return absl::OkStatus();
}

absl::Status SessionRpc::Detach(const Caller& caller) {
  const SessionPtr& session = caller.session;
  SessionHub::Closed closed = hub_->Close(session, core::CloseReason::kDetached);
  // Memory is destroyed here, so that it is free when the client gets the answer.
  hub_->Destroy(std::move(closed.garbage));
  if (!closed.now) return absl::OkStatus();  // two calls at once
  log_->Write(session->spec().tenant, os::LogLevel::kInfo, "session detached",
              {{"session", absl::StrCat(shm::Value(session->id()))},
               {"job", session->spec().job},
               {"rank", absl::StrCat(session->spec().rank)}});
  on_detached_(session->id());
  return absl::OkStatus();
}

void ChunkRpc::AddTo(std::vector<RpcMethod>* methods) {
  RpcMethod allocate = Method("/geminid.v1.ChunkService/Allocate", kAllocateBounds);
  ServeWith<v1::AllocateChunksRequest, v1::AllocateChunksResponse>(
      &allocate, [this](const Caller& caller, const auto& request, auto* response) {
        return Allocate(caller, request, response);
      });
  methods->push_back(std::move(allocate));
  RpcMethod free = Method("/geminid.v1.ChunkService/Free", kFreeBounds);
  ServeWith<v1::FreeChunksRequest, v1::FreeChunksResponse>(
      &free,
      [this](const Caller& caller, const auto& request, auto*) { return Free(caller, request); });
  methods->push_back(std::move(free));
}

absl::Status ChunkRpc::Allocate(const Caller& caller, const v1::AllocateChunksRequest& request,
                                v1::AllocateChunksResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<core::ChunkSpec> specs, SpecsOf(request));
  GEMINID_ASSIGN_OR_RETURN(
      core::Allocation allocation,
      request.claim() ? hub_->Claim(caller.session, specs, request.number())
                      : hub_->Allocate(caller.session, specs, request.number(), request.again()));
  for (const shm::ChunkId chunk : allocation.chunks) response->add_chunk(shm::Index(chunk));
  for (const uint64_t offset : allocation.home_offsets) response->add_pool_offset(offset);
  response->set_pool(shm::Value(allocation.pool));
  response->set_pool_bytes(allocation.pool_bytes);
  return absl::OkStatus();
}

absl::Status ChunkRpc::Free(const Caller& caller, const v1::FreeChunksRequest& request) {
  if (request.older_than() > 0) return hub_->FreeOlder(caller.session, request.older_than());
  std::vector<shm::ChunkId> chunks;
  for (const uint32_t chunk : request.chunk()) chunks.push_back(shm::ChunkId{chunk});
  return hub_->Free(caller.session, std::move(chunks), request.again());
}

void PlanRpc::AddTo(std::vector<RpcMethod>* methods) {
  RpcMethod make = Method("/geminid.v1.PlanService/MakePlan", kPlanBounds);
  ServeWith<v1::MakePlanRequest, v1::MakePlanResponse>(
      &make, [this](const Caller& caller, const auto& request, auto* response) {
        return MakePlan(caller, request, response);
      });
  methods->push_back(std::move(make));
}

absl::Status PlanRpc::MakePlan(const Caller& caller, const v1::MakePlanRequest& request,
                               v1::MakePlanResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(planner::PlannerOptions options, OptionsOf(request));
  const auto trace = messages::TraceFromMessage<planner::Trace>(request.trace());
  GEMINID_ASSIGN_OR_RETURN(planner::Plan plan, planner::MakePlan(trace, options));
  // The planner is not trusted with the memory of other tenants either.
  GEMINID_RETURN_IF_ERROR(planner::CheckPlan(trace, plan));
  *response->mutable_plan() = ToMessage(trace, plan);
  return hub_->SetPlan(caller.session, NextUses(trace), request.trace(), response->plan());
}

}  // namespace geminid::service
