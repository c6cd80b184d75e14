#include "daemon/service/calls/operator_services.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/service/sessions/plan_messages.h"
#include "daemon/service/sessions/registrations.h"
#include "daemon/service/sessions/snapshot_messages.h"
#include "daemon/service/watch/pages.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {
namespace {

const ClientSession* Find(const Sessions& sessions, shm::SessionId id) {
  const auto found = sessions.find(id);
  return found == sessions.end() ? nullptr : found->second.get();
}

constexpr bool kIsListing = true;

// Adds a method. Its answer may depend on nothing, on the request, or on the request and the
// caller.
template <typename Request, typename Response, typename Serve>
void Add(std::vector<RpcMethod>* methods, const char* path, bool is_listing, Serve serve) {
  RpcMethod method;
  method.path = path;
  method.is_listing = is_listing;
  ServeWith<Request, Response>(
      &method, [serve](const Caller& caller, const Request& request, Response* response) {
        if constexpr (std::is_invocable_v<Serve, Response*>) {
          return serve(response);
        } else if constexpr (std::is_invocable_v<Serve, const Request&, Response*>) {
          return serve(request, response);
        } else {
          return serve(caller, request, response);
        }
      });
  methods->push_back(std::move(method));
}

absl::Status CheckVisible(const Caller& caller, const ClientSession& session) {
  const std::string& tenant = session.spec().tenant;
  if (caller.MaySee(tenant)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("session ", shm::Value(session.id()), " is of tenant ", tenant,
                   "; its contents are shown to ",
                   "that tenant, to root and to the user the daemon runs as: ask as one of them"));
}

// A request without a run asks for every session.
bool IsAskedFor(const Caller& caller, const v1::ListSessionsRequest& request,
                const core::SessionSpec& session) {
  if (request.run().empty()) return true;
  return session.run == request.run() && session.job == request.job() &&
         session.tenant == caller.identity.tenant;
}

// The chunks that the caller may see, of one session or (kNoSession) of all.
std::vector<core::ChunkSnapshot> VisibleChunks(const core::Engine& engine, const Sessions& sessions,
                                               const Caller& caller, shm::SessionId session,
                                               size_t limit, const PageStart& start) {
  const core::ChunkPlace from = {shm::SessionId{start.session}, shm::ChunkId{start.item}};
  if (session != core::kNoSession || caller.identity.is_operator) {
    return engine.Chunks(session, limit, from);
  }
  std::vector<core::ChunkSnapshot> chunks;
  for (auto it = sessions.lower_bound(from.session); it != sessions.end(); ++it) {
    if (chunks.size() >= limit) break;
    if (!caller.MaySee(it->second->spec().tenant)) continue;
    std::vector<core::ChunkSnapshot> more =
        engine.Chunks(it->first, limit - chunks.size(),
                      it->first == from.session ? from : core::ChunkPlace{.session = it->first});
    std::move(more.begin(), more.end(), std::back_inserter(chunks));
  }
  return chunks;
}

uint64_t CountVisible(const core::Engine& engine, const Sessions& sessions, const Caller& caller,
                      shm::SessionId session) {
  if (session != core::kNoSession || caller.identity.is_operator) return engine.ChunkCount(session);
  uint64_t count = 0;
  for (const auto& [id, other] : sessions) {
    if (caller.MaySee(other->spec().tenant)) count += engine.ChunkCount(id);
  }
  return count;
}

void AddRegistrations(const core::Engine& engine, const Sessions& sessions, v1::Status* response) {
  for (const core::SessionSnapshot& snapshot : engine.Sessions()) {
    const ClientSession* const session = Find(sessions, snapshot.id);
    if (session == nullptr) continue;
    const std::optional<shm::HostRegistration> registration = RegistrationOf(*session);
    if (!registration.has_value()) continue;
    *response->add_host_registrations() = RegistrationMessage(snapshot, *registration);
  }
}

void AddGpus(const gpus::Gpus& all, v1::Status* response) {
  for (const auto& [device, reading] : all.Read()) {
    *response->add_gpus() = GpuMessage(device, reading);
  }
  for (const auto& [device, why] : all.missing()) {
    v1::GpuInfo* gpu = response->add_gpus();
    gpu->set_device(shm::Value(device));
    gpu->set_agent("missing");
    gpu->set_health(Name(gpus::Condition::kUnknown));
    gpu->set_why(why);
  }
}

}  // namespace

void MemoryRpc::AddTo(std::vector<RpcMethod>* methods) {
  Add<v1::GetLedgerRequest, v1::Ledger>(methods, "/geminid.v1.MemoryService/GetLedger", !kIsListing,
                                        [this](v1::Ledger* answer) { return GetLedger(answer); });
}

void AdminRpc::AddTo(std::vector<RpcMethod>* methods) {
  Add<v1::GetStatusRequest, v1::Status>(methods, "/geminid.v1.AdminService/GetStatus", !kIsListing,
                                        [this](v1::Status* answer) { return GetStatus(answer); });
  Add<v1::ListSessionsRequest, v1::ListSessionsResponse>(
      methods, "/geminid.v1.AdminService/ListSessions", kIsListing,
      [this](const Caller& caller, const auto& request, auto* answer) {
        return ListSessions(caller, request, answer);
      });
  Add<v1::ListPoolsRequest, v1::ListPoolsResponse>(
      methods, "/geminid.v1.AdminService/ListPools", kIsListing,
      [this](const v1::ListPoolsRequest& request, v1::ListPoolsResponse* answer) {
        return ListPools(request, answer);
      });
  Add<v1::ListChunksRequest, v1::ListChunksResponse>(
      methods, "/geminid.v1.AdminService/ListChunks", kIsListing,
      [this](const Caller& caller, const auto& request, auto* answer) {
        return ListChunks(caller, request, answer);
      });
  Add<v1::ExplainChunkRequest, v1::ExplainChunkResponse>(
      methods, "/geminid.v1.AdminService/ExplainChunk", kIsListing,
      [this](const Caller& caller, const auto& request, auto* answer) {
        return ExplainChunk(caller, request, answer);
      });
  Add<v1::GetTraceRequest, v1::TraceFile>(
      methods, "/geminid.v1.AdminService/GetTrace", kIsListing,
      [this](const Caller& caller, const auto& request, auto* answer) {
        return GetTrace(caller, request, answer);
      });
}

void ConfigRpc::AddTo(std::vector<RpcMethod>* methods) {
  Add<v1::ShowConfigRequest, v1::ShowConfigResponse>(
      methods, "/geminid.v1.ConfigService/Show", !kIsListing,
      [this](v1::ShowConfigResponse* answer) { return Show(answer); });
}

absl::Status MemoryRpc::GetLedger(v1::Ledger* response) {
  *response = hub_->Inspect(
      [](const core::Engine& engine, const Sessions&) { return LedgerMessage(engine); });
  return absl::OkStatus();
}

absl::Status AdminRpc::GetStatus(v1::Status* response) {
  response->set_version(facts_.version);
  response->set_daemon_epoch(hub_->daemon_epoch());
  response->set_start_time_seconds(facts_.start_time_seconds);
  response->set_uptime_seconds(
      static_cast<double>(os::MonotonicNanoseconds() - facts_.start_nanoseconds) * 1e-9);
  response->set_pid(::getpid());
  response->set_socket(facts_.socket);
  response->set_metrics_address(facts_.metrics_address.empty() && !facts_.metrics_socket.empty()
                                    ? absl::StrCat("unix:", facts_.metrics_socket)
                                    : facts_.metrics_address);
  hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) {
    response->set_sessions(static_cast<uint32_t>(sessions.size()));
    response->set_drained(engine.jobs().drained());
    response->set_phase(facts_.vitals->stopping.load() ? "draining"
                        : response->drained()          ? "drained"
                                                       : "serving");
    *response->mutable_ledger() = LedgerMessage(engine);
    for (const core::DeviceDescription& device : engine.devices()) {
      *response->add_devices() = DeviceMessage(device);
    }
    AddRegistrations(engine, sessions, response);
  });
  if (hub_->gpus() != nullptr) AddGpus(*hub_->gpus(), response);
  for (const os::MachineFact& fact : os::Facts(hub_->machine(), hub_->huge_pages())) {
    v1::MachineFact* to = response->add_facts();
    to->set_name(fact.name);
    to->set_value(fact.value);
    to->set_in_use(fact.in_use);
    to->set_why_not(fact.why_not);
  }
  if (facts_.vitals->survival.load() == SessionSurvival::kLost) {
    v1::MachineFact* to = response->add_facts();
    to->set_name("descriptor store");
    to->set_value("sessions end with the daemon");
    to->set_why_not("geminid-holder does not run; the log says why");
  }
  return absl::OkStatus();
}

absl::Status AdminRpc::ListSessions(const Caller& caller, const v1::ListSessionsRequest& request,
                                    v1::ListSessionsResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(const PageStart start, FromToken(request.page_token()));
  hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) {
    size_t looked_at = 0;
    for (const core::SessionSnapshot& snapshot :
         engine.Sessions(shm::SessionId{start.session}, kPageEntries + 1)) {
      if (looked_at++ == kPageEntries) {
        response->set_next_page_token(ToToken({.session = shm::Value(snapshot.id)}));
        break;
      }
      if (!IsAskedFor(caller, request, snapshot.spec)) continue;
      const ClientSession* session = Find(sessions, snapshot.id);
      const bool visible = session != nullptr && caller.MaySee(snapshot.spec.tenant);
      *response->add_sessions() =
          SessionMessage(snapshot, session == nullptr ? ClientNumbers{} : session->ReadNumbers(),
                         visible ? session->plan : PlanNumbers{}, Now());
    }
  });
  return absl::OkStatus();
}

absl::Status AdminRpc::ListPools(const v1::ListPoolsRequest& request,
                                 v1::ListPoolsResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(const PageStart start, FromToken(request.page_token()));
  hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) {
    const core::PoolPlace from = {shm::SessionId{start.session}, shm::PoolId{start.item}};
    for (const core::PoolSnapshot& snapshot : engine.Pools(from, kPageEntries + 1)) {
      if (static_cast<size_t>(response->pools_size()) == kPageEntries) {
        response->set_next_page_token(
            ToToken({shm::Value(snapshot.session), shm::Value(snapshot.pool)}));
        break;
      }
      *response->add_pools() = PoolMessage(snapshot, Find(sessions, snapshot.session));
    }
  });
  return absl::OkStatus();
}

absl::Status AdminRpc::ListChunks(const Caller& caller, const v1::ListChunksRequest& request,
                                  v1::ListChunksResponse* response) {
  GEMINID_ASSIGN_OR_RETURN(const PageStart start, FromToken(request.page_token()));
  const size_t limit =
      request.limit() == 0 ? kPageEntries : std::min<size_t>(request.limit(), kPageEntries);
  const shm::SessionId session{request.session()};
  std::vector<core::ChunkSnapshot> chunks;
  absl::Status status =
      hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) -> absl::Status {
        if (const ClientSession* named = Find(sessions, session); named != nullptr) {
          GEMINID_RETURN_IF_ERROR(CheckVisible(caller, *named));
        }
        chunks = VisibleChunks(engine, sessions, caller, session, limit + 1, start);
        response->set_total(CountVisible(engine, sessions, caller, session));
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  if (chunks.size() > limit) {
    const core::ChunkIdentity& next = chunks.back().identity;
    response->set_next_page_token(ToToken({shm::Value(next.session), shm::Index(next.chunk)}));
    chunks.pop_back();
  }
  for (const core::ChunkSnapshot& chunk : chunks) *response->add_chunks() = ChunkMessage(chunk);
  return absl::OkStatus();
}

absl::Status AdminRpc::ExplainChunk(const Caller& caller, const v1::ExplainChunkRequest& request,
                                    v1::ExplainChunkResponse* response) {
  const shm::SessionId session{request.session()};
  const shm::ChunkId chunk{request.chunk()};
  return hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) -> absl::Status {
    if (const ClientSession* named = Find(sessions, session); named != nullptr) {
      GEMINID_RETURN_IF_ERROR(CheckVisible(caller, *named));
    }
    GEMINID_ASSIGN_OR_RETURN(std::vector<std::string> lines, engine.Explain(session, chunk));
    for (std::string& line : lines) response->add_lines(std::move(line));
    const std::optional<core::ChunkSnapshot> found = engine.FindChunk(session, chunk);
    if (found.has_value()) *response->mutable_chunk() = ChunkMessage(*found);
    return absl::OkStatus();
  });
}

absl::Status AdminRpc::GetTrace(const Caller& caller, const v1::GetTraceRequest& request,
                                v1::TraceFile* response) {
  const shm::SessionId id{request.session()};
  std::shared_ptr<const StoredPlan> kept;  // is read without the hub's mutex
  absl::Status status = hub_->Inspect([&](const core::Engine&,
                                          const Sessions& sessions) -> absl::Status {
    const ClientSession* session = Find(sessions, id);
    if (session == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no session ", request.session()));
    }
    GEMINID_RETURN_IF_ERROR(CheckVisible(caller, *session));
    if (session->stored_plan == nullptr) {
      return absl::NotFoundError(absl::StrCat("session ", request.session(),
                                              " has no trace to give: no plan was made for it yet, "
                                              "or its trace has more than ",
                                              base::FormatBytes(kMaxKeptTraceBytes)));
    }
    kept = session->stored_plan;
    const core::SessionSpec& spec = session->spec();
    response->set_description(
        absl::StrCat("job ", spec.job, ", rank ", spec.rank, " of ", spec.world_size));
    response->set_world_size(static_cast<uint32_t>(spec.world_size));
    uint32_t of_job = 0;
    for (const auto& [other_id, other] : sessions) of_job += other->spec().job == spec.job ? 1 : 0;
    response->set_ranks_on_node(std::min(of_job, response->world_size()));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  GEMINID_ASSIGN_OR_RETURN(StoredPlan::Contents contents, kept->Read(id));
  response->set_format_version(messages::kTraceFileVersion);
  *response->mutable_trace() = std::move(contents.trace);
  return absl::OkStatus();
}

absl::Status ConfigRpc::Show(v1::ShowConfigResponse* response) {
  const config::Settings settings = settings_->Get();
  *response->mutable_effective() = settings.effective;
  for (const config::Origin& origin : settings.origins) {
    v1::ConfigOrigin* to = response->add_origins();
    to->set_key(origin.key);
    to->set_value(origin.value);
    to->set_origin(origin.origin);
  }
  return absl::OkStatus();
}

}  // namespace geminid::service
