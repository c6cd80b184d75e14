#include "daemon/service/client_services.h"

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"
#include "daemon/planner/make_plan.h"
#include "daemon/service/plan_messages.h"
#include "daemon/service/rpc_status.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {
namespace {

absl::StatusOr<SessionPtr> CallerOf(const grpc::ServerContext& context, Hub* hub) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(shm::kTokenMetadataKey);
  if (found == metadata.end()) return hub->Authenticate("");
  return hub->Authenticate(std::string(found->second.data(), found->second.size()));
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

grpc::Status SessionRpc::CreateArena(grpc::ServerContext* context,
                                     const v1::CreateArenaRequest* request,
                                     v1::CreateArenaResponse* response) {
  absl::StatusOr<SessionPtr> session = CallerOf(*context, hub_);
  if (!session.ok()) return ToGrpc(session.status());
  absl::StatusOr<Hub::ArenaMade> made = hub_->CreateArena(*session, request->bytes());
  if (!made.ok()) return ToGrpc(made.status());
  response->set_bytes(made->bytes);
  response->set_slabs(made->slabs);
  return grpc::Status::OK;
}

grpc::Status SessionRpc::Detach(grpc::ServerContext* context, const v1::DetachRequest*,
                                v1::DetachResponse*) {
  absl::StatusOr<SessionPtr> session = CallerOf(*context, hub_);
  if (!session.ok()) return ToGrpc(session.status());
  Hub::Closed closed = hub_->Close((*session)->id(), core::CloseReason::kDetached);
  // Here, so that the memory is free when the client is told so.
  hub_->Destroy(std::move(closed.garbage));
  if (!closed.now) return grpc::Status::OK;  // two calls at once
  os::Log(os::LogLevel::kInfo, "session detached",
          {{"session", absl::StrCat(shm::Value((*session)->id()))},
           {"job", (*session)->spec().job},
           {"rank", absl::StrCat((*session)->spec().rank)}});
  on_detached_((*session)->id());
  return grpc::Status::OK;
}

grpc::Status ChunkRpc::Allocate(grpc::ServerContext* context,
                                const v1::AllocateChunksRequest* request,
                                v1::AllocateChunksResponse* response) {
  absl::StatusOr<SessionPtr> session = CallerOf(*context, hub_);
  if (!session.ok()) return ToGrpc(session.status());
  absl::StatusOr<std::vector<core::ChunkSpec>> specs = SpecsOf(*request);
  if (!specs.ok()) return ToGrpc(specs.status());
  absl::StatusOr<core::Allocation> allocation = hub_->Allocate(*session, *specs);
  if (!allocation.ok()) return ToGrpc(allocation.status());
  for (const shm::ChunkId chunk : allocation->chunks) response->add_chunk(shm::Index(chunk));
  for (const uint64_t offset : allocation->home_offsets) response->add_pool_offset(offset);
  response->set_pool(shm::Value(allocation->pool));
  response->set_pool_bytes(allocation->pool_bytes);
  return grpc::Status::OK;
}

grpc::Status ChunkRpc::Free(grpc::ServerContext* context, const v1::FreeChunksRequest* request,
                            v1::FreeChunksResponse*) {
  absl::StatusOr<SessionPtr> session = CallerOf(*context, hub_);
  if (!session.ok()) return ToGrpc(session.status());
  std::vector<shm::ChunkId> chunks;
  for (const uint32_t chunk : request->chunk()) chunks.push_back(shm::ChunkId{chunk});
  return ToGrpc(hub_->Free(*session, chunks));
}

grpc::Status PlanRpc::MakePlan(grpc::ServerContext* context, const v1::MakePlanRequest* request,
                               v1::MakePlanResponse* response) {
  absl::StatusOr<SessionPtr> session = CallerOf(*context, hub_);
  if (!session.ok()) return ToGrpc(session.status());
  absl::StatusOr<planner::PlannerOptions> options = OptionsOf(*request);
  if (!options.ok()) return ToGrpc(options.status());
  const auto trace = messages::TraceFromMessage<planner::Trace>(request->trace());
  absl::StatusOr<planner::Plan> plan = planner::MakePlan(trace, *options);
  if (!plan.ok()) return ToGrpc(plan.status());
  // The planner is not trusted with other people's memory either.
  if (absl::Status status = planner::CheckPlan(trace, *plan); !status.ok()) return ToGrpc(status);
  const PlanNumbers numbers = {plan->h2d_bytes, plan->lower_bound_bytes};
  std::shared_ptr<const v1::Trace> kept;
  if (request->trace().ByteSizeLong() <= kMaxKeptTraceBytes) {
    kept = std::make_shared<const v1::Trace>(request->trace());
  }
  if (absl::Status status = hub_->SetPlan(*session, NextUses(trace), numbers, std::move(kept));
      !status.ok()) {
    return ToGrpc(status);
  }
  *response->mutable_plan() = ToMessage(trace, *plan);
  return grpc::Status::OK;
}

}  // namespace geminid::service
