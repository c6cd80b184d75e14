#include "daemon/service/operator_services.h"

#include <unistd.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/os/event.h"
#include "daemon/service/plan_messages.h"
#include "daemon/service/snapshot_messages.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {
namespace {

using Sessions = std::map<shm::SessionId, SessionPtr>;

const ClientSession* Find(const Sessions& sessions, shm::SessionId id) {
  const auto found = sessions.find(id);
  return found == sessions.end() ? nullptr : found->second.get();
}

// A listing builds many messages under the hub's mutex.
constexpr double kListingCost = 10;

// A method whose answer depends on nothing that is asked, or on all of it.
template <typename Request, typename Response, typename Serve>
void Add(std::vector<RpcMethod>* methods, const char* path, double cost, Serve serve) {
  RpcMethod method;
  method.path = path;
  method.cost = cost;
  ServeWith<Request, Response>(&method,
                               [serve](const Caller&, const Request& request, Response* response) {
                                 if constexpr (std::is_invocable_v<Serve, Response*>) {
                                   return serve(response);
                                 } else {
                                   return serve(request, response);
                                 }
                               });
  methods->push_back(std::move(method));
}

}  // namespace

void MemoryRpc::AddTo(std::vector<RpcMethod>* methods) {
  Add<v1::GetLedgerRequest, v1::Ledger>(methods, "/geminid.v1.MemoryService/GetLedger", 1,
                                        [this](v1::Ledger* answer) { return GetLedger(answer); });
}

void AdminRpc::AddTo(std::vector<RpcMethod>* methods) {
  Add<v1::GetStatusRequest, v1::Status>(methods, "/geminid.v1.AdminService/GetStatus", 1,
                                        [this](v1::Status* answer) { return GetStatus(answer); });
  Add<v1::ListSessionsRequest, v1::ListSessionsResponse>(
      methods, "/geminid.v1.AdminService/ListSessions", kListingCost,
      [this](v1::ListSessionsResponse* answer) { return ListSessions(answer); });
  Add<v1::ListPoolsRequest, v1::ListPoolsResponse>(
      methods, "/geminid.v1.AdminService/ListPools", kListingCost,
      [this](v1::ListPoolsResponse* answer) { return ListPools(answer); });
  Add<v1::ListChunksRequest, v1::ListChunksResponse>(
      methods, "/geminid.v1.AdminService/ListChunks", kListingCost,
      [this](const auto& request, auto* answer) { return ListChunks(request, answer); });
  Add<v1::ExplainChunkRequest, v1::ExplainChunkResponse>(
      methods, "/geminid.v1.AdminService/ExplainChunk", kListingCost,
      [this](const auto& request, auto* answer) { return ExplainChunk(request, answer); });
  Add<v1::GetTraceRequest, v1::TraceFile>(
      methods, "/geminid.v1.AdminService/GetTrace", kListingCost,
      [this](const auto& request, auto* answer) { return GetTrace(request, answer); });
}

void ConfigRpc::AddTo(std::vector<RpcMethod>* methods) {
  Add<v1::ShowConfigRequest, v1::ShowConfigResponse>(
      methods, "/geminid.v1.ConfigService/Show", 1,
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
  response->set_phase(facts_.draining->load() ? "draining" : "serving");
  response->set_start_time_seconds(facts_.start_time_seconds);
  response->set_uptime_seconds(
      static_cast<double>(os::MonotonicNanoseconds() - facts_.start_nanoseconds) * 1e-9);
  response->set_pid(::getpid());
  response->set_socket(facts_.socket);
  response->set_metrics_address(facts_.metrics_address);
  hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) {
    response->set_sessions(static_cast<uint32_t>(sessions.size()));
    *response->mutable_ledger() = LedgerMessage(engine);
    for (const core::DeviceDescription& device : engine.devices()) {
      *response->add_devices() = DeviceMessage(device);
    }
  });
  for (const os::MachineFact& fact : os::Facts(hub_->machine(), hub_->huge_pages())) {
    v1::MachineFact* to = response->add_facts();
    to->set_name(fact.name);
    to->set_value(fact.value);
    to->set_in_use(fact.in_use);
    to->set_why_not(fact.why_not);
  }
  return absl::OkStatus();
}

absl::Status AdminRpc::ListSessions(v1::ListSessionsResponse* response) {
  hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) {
    for (const core::SessionSnapshot& snapshot : engine.Sessions()) {
      const ClientSession* session = Find(sessions, snapshot.id);
      *response->add_sessions() =
          SessionMessage(snapshot, session == nullptr ? ClientNumbers{} : session->ReadNumbers(),
                         session == nullptr ? PlanNumbers{} : session->plan, Now());
    }
  });
  return absl::OkStatus();
}

absl::Status AdminRpc::ListPools(v1::ListPoolsResponse* response) {
  hub_->Inspect([&](const core::Engine& engine, const Sessions& sessions) {
    for (const core::PoolSnapshot& snapshot : engine.Pools()) {
      *response->add_pools() = PoolMessage(snapshot, Find(sessions, snapshot.session));
    }
  });
  return absl::OkStatus();
}

absl::Status AdminRpc::ListChunks(const v1::ListChunksRequest& request,
                                  v1::ListChunksResponse* response) {
  const uint32_t limit =
      std::min(request.limit() == 0 ? kDefaultChunkLimit : request.limit(), kMaxChunkLimit);
  const shm::SessionId session{request.session()};
  hub_->Inspect([&](const core::Engine& engine, const Sessions&) {
    for (const core::ChunkSnapshot& chunk : engine.Chunks(session, limit)) {
      *response->add_chunks() = ChunkMessage(chunk);
    }
    response->set_total(engine.ChunkCount(session));
  });
  return absl::OkStatus();
}

absl::Status AdminRpc::ExplainChunk(const v1::ExplainChunkRequest& request,
                                    v1::ExplainChunkResponse* response) {
  const shm::SessionId session{request.session()};
  const shm::ChunkId chunk{request.chunk()};
  return hub_->Inspect([&](const core::Engine& engine, const Sessions&) -> absl::Status {
    absl::StatusOr<std::vector<std::string>> lines = engine.Explain(session, chunk);
    if (!lines.ok()) return lines.status();
    for (std::string& line : *lines) response->add_lines(std::move(line));
    const std::optional<core::ChunkSnapshot> found = engine.FindChunk(session, chunk);
    if (found.has_value()) *response->mutable_chunk() = ChunkMessage(*found);
    return absl::OkStatus();
  });
}

absl::Status AdminRpc::GetTrace(const v1::GetTraceRequest& request, v1::TraceFile* response) {
  std::shared_ptr<const v1::Trace> trace;  // copied into the answer without the hub's mutex
  const absl::Status status = hub_->Inspect([&](const core::Engine&,
                                                const Sessions& sessions) -> absl::Status {
    const ClientSession* session = Find(sessions, shm::SessionId{request.session()});
    if (session == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no session ", request.session()));
    }
    if (session->trace == nullptr) {
      return absl::NotFoundError(absl::StrCat("session ", request.session(),
                                              " has no trace to give: no plan was made for it yet, "
                                              "or its trace has more than ",
                                              base::FormatBytes(kMaxKeptTraceBytes)));
    }
    trace = session->trace;
    const core::SessionSpec& spec = session->spec();
    response->set_description(
        absl::StrCat("job ", spec.job, ", rank ", spec.rank, " of ", spec.world_size));
    response->set_world_size(static_cast<uint32_t>(spec.world_size));
    uint32_t of_job = 0;
    for (const auto& [id, other] : sessions) of_job += other->spec().job == spec.job ? 1 : 0;
    response->set_ranks_on_node(std::min(of_job, response->world_size()));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  response->set_format_version(messages::kTraceFileVersion);
  *response->mutable_trace() = *trace;
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
