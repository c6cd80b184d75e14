// The operator's view: status, sessions, pools, chunks, configuration, health, plans.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/service/sessions/plan_messages.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/config.grpc.pb.h"
#include "geminid/v1/plan.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "proto/messages/trace_messages.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::RawClient;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class Operator : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    admin_ = v1::AdminService::NewStub(client_->channel());
  }

  void AllocateMemory() {
    v1::CreateArenaRequest arena;
    arena.set_bytes(4 * kMiB);
    v1::CreateArenaResponse arena_response;
    grpc::ClientContext arena_context;
    client_->Authenticate(&arena_context);
    ASSERT_TRUE(v1::SessionService::NewStub(client_->channel())
                    ->CreateArena(&arena_context, arena, &arena_response)
                    .ok());
    v1::AllocateChunksRequest request;
    for (int i = 0; i < 3; ++i) {
      v1::ChunkSpec* chunk = request.add_chunks();
      chunk->set_name("layer" + std::to_string(i));
      chunk->set_kind(v1::CHUNK_KIND_WEIGHT);
      chunk->set_bytes(kMiB);
      chunk->set_has_home(true);
    }
    grpc::ClientContext context;
    client_->Authenticate(&context);
    ASSERT_TRUE(v1::ChunkService::NewStub(client_->channel())
                    ->Allocate(&context, request, &allocated_)
                    .ok());
  }

  DaemonEnv env_;
  std::unique_ptr<RawClient> client_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  v1::AllocateChunksResponse allocated_;
};

TEST_F(Operator, GetStatus_DescribesTheDaemon) {
  v1::Status status;
  grpc::ClientContext context;
  ASSERT_TRUE(admin_->GetStatus(&context, v1::GetStatusRequest(), &status).ok());
  EXPECT_EQ(status.phase(), "serving");
  EXPECT_EQ(status.pid(), ::getpid());
  EXPECT_EQ(status.socket(), env_.socket());
  EXPECT_EQ(status.daemon_epoch(), 1u);
  EXPECT_EQ(status.sessions(), 1u);
  EXPECT_TRUE(status.ledger().adds_up());
  EXPECT_GE(status.facts_size(), 4);
  for (const v1::MachineFact& fact : status.facts()) EXPECT_NE(fact.value(), "") << fact.name();
}

TEST_F(Operator, ListSessions_ShowsTheKernelsIdentity) {
  AllocateMemory();
  client_->client()->counters.step.store(17);
  v1::ListSessionsResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(admin_->ListSessions(&context, v1::ListSessionsRequest(), &response).ok());
  ASSERT_EQ(response.sessions_size(), 1);
  const v1::SessionInfo& session = response.sessions(0);
  EXPECT_EQ(session.session(), client_->welcome().session_id);
  EXPECT_EQ(session.uid(), ::getuid());
  EXPECT_EQ(session.pid(), ::getpid());
  EXPECT_EQ(session.tenant(), "uid:" + std::to_string(::getuid()));
  EXPECT_EQ(session.job(), "demo");
  EXPECT_EQ(session.state(), "attached");
  EXPECT_EQ(session.host_bytes(), 3 * kMiB);
  EXPECT_EQ(session.device_bytes(), 4 * kMiB);
  EXPECT_EQ(session.step(), 17u);
  EXPECT_EQ(session.chunks(), 3u);
  EXPECT_EQ(session.stall_seconds_size(), shm::kStallCauses);
}

TEST_F(Operator, ListPools_ShowsPoolAndArena) {
  AllocateMemory();
  v1::ListPoolsResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(admin_->ListPools(&context, v1::ListPoolsRequest(), &response).ok());
  ASSERT_EQ(response.pools_size(), 2);
  for (const v1::PoolInfo& pool : response.pools()) {
    if (pool.tier() == v1::TIER_HOST) {
      EXPECT_EQ(pool.bytes(), 3 * kMiB);
      EXPECT_EQ(pool.in_use_bytes(), 3 * kMiB);
    } else {
      EXPECT_EQ(pool.tier(), v1::TIER_DEVICE);
      EXPECT_EQ(pool.bytes(), 4 * kMiB);
    }
    EXPECT_GT(pool.populate_seconds(), 0);
  }
}

TEST_F(Operator, ListChunks_IsLimited) {
  AllocateMemory();
  v1::ListChunksRequest request;
  request.set_limit(2);
  v1::ListChunksResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(admin_->ListChunks(&context, request, &response).ok());
  ASSERT_EQ(response.chunks_size(), 2);
  EXPECT_EQ(response.total(), 3u);
  EXPECT_EQ(response.chunks(0).name(), "layer0");
  EXPECT_EQ(response.chunks(1).bytes(), kMiB);
  EXPECT_EQ(response.chunks(0).residency(), "absent");
}

TEST_F(Operator, ExplainChunk_SaysSentences) {
  AllocateMemory();
  v1::ExplainChunkRequest request;
  request.set_session(client_->welcome().session_id);
  request.set_chunk(allocated_.chunk(1));
  v1::ExplainChunkResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(admin_->ExplainChunk(&context, request, &response).ok());
  }
  EXPECT_GE(response.lines_size(), 1);
  EXPECT_EQ(response.chunk().name(), "layer1");
  request.set_chunk(4711);
  grpc::ClientContext context;
  EXPECT_EQ(admin_->ExplainChunk(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(Operator, ShowConfig_HasValuesAndOrigins) {
  v1::ShowConfigResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ConfigService::NewStub(client_->channel())
                  ->Show(&context, v1::ShowConfigRequest(), &response)
                  .ok());
  EXPECT_EQ(response.effective().socket(), env_.socket());
  bool found = false;
  for (const v1::ConfigOrigin& origin : response.origins()) {
    if (origin.key() != "host_memory") continue;
    found = true;
    EXPECT_EQ(origin.value(), "1GiB");
    EXPECT_EQ(origin.origin(), "flag --host-memory");
  }
  EXPECT_TRUE(found);
}

TEST_F(Operator, MakePlan_PlansAndIsRemembered) {
  AllocateMemory();
  v1::MakePlanRequest request;
  v1::Trace* trace = request.mutable_trace();
  trace->set_arena_bytes(4 * kMiB);
  for (int i = 0; i < 3; ++i) {
    v1::TraceChunk* chunk = trace->add_chunks();
    chunk->set_chunk(allocated_.chunk(i));
    chunk->set_device_bytes(2 * kMiB);
    chunk->set_transfer_bytes(2 * kMiB);
  }
  for (const uint32_t index : {0u, 1u, 2u, 2u, 1u, 0u}) {
    v1::TraceMoment* moment = trace->add_moments();
    moment->add_uses()->set_index(index);
    moment->set_compute_seconds(1e-3);
  }
  trace->mutable_link()->set_host_to_device_bytes_per_second(1e10);
  trace->mutable_link()->set_device_to_host_bytes_per_second(1e10);
  request.set_policy(v1::PLACEMENT_POLICY_AUTO);
  request.set_weights_change_between_iterations(true);
  v1::MakePlanResponse response;
  {
    grpc::ClientContext context;
    client_->Authenticate(&context);
    const grpc::Status status =
        v1::PlanService::NewStub(client_->channel())->MakePlan(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(response.plan().moments_size(), 6);
  EXPECT_GE(response.plan().transfer_bytes(), response.plan().transfer_bytes_lower_bound());
  EXPECT_GE(response.plan().transfer_bytes(), 6 * kMiB);
  EXPECT_NE(response.plan().explanation(), "");
  EXPECT_NE(response.plan().plan_hash(), 0u);
  v1::ListSessionsResponse sessions;
  grpc::ClientContext context;
  ASSERT_TRUE(admin_->ListSessions(&context, v1::ListSessionsRequest(), &sessions).ok());
  EXPECT_EQ(sessions.sessions(0).planned_transfer_bytes(), response.plan().transfer_bytes());
  // An operator can read the trace, to plan or simulate it.
  v1::GetTraceRequest which;
  which.set_session(sessions.sessions(0).session());
  v1::TraceFile file;
  grpc::ClientContext get;
  ASSERT_TRUE(admin_->GetTrace(&get, which, &file).ok());
  EXPECT_EQ(file.trace().SerializeAsString(), request.trace().SerializeAsString());
  EXPECT_EQ(file.format_version(), messages::kTraceFileVersion);
  EXPECT_EQ(file.world_size(), static_cast<uint32_t>(sessions.sessions(0).world_size()));
  EXPECT_EQ(file.ranks_on_node(), 1u);
}

TEST_F(Operator, GetTrace_WithoutASessionOrAPlan_IsNotFound) {
  v1::ListSessionsResponse sessions;
  grpc::ClientContext list;
  ASSERT_TRUE(admin_->ListSessions(&list, v1::ListSessionsRequest(), &sessions).ok());
  for (const uint64_t session : {sessions.sessions(0).session(), uint64_t{987654}}) {
    v1::GetTraceRequest request;
    request.set_session(session);
    v1::TraceFile file;
    grpc::ClientContext context;
    EXPECT_EQ(admin_->GetTrace(&context, request, &file).error_code(), grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(Operator, MakePlan_ThatCannotFit_IsRefusedWithNumbers) {
  v1::MakePlanRequest request;
  v1::Trace* trace = request.mutable_trace();
  trace->set_arena_bytes(kMiB);
  v1::TraceChunk* chunk = trace->add_chunks();
  chunk->set_device_bytes(2 * kMiB);
  chunk->set_transfer_bytes(2 * kMiB);
  trace->add_moments()->add_uses()->set_index(0);
  trace->mutable_link()->set_host_to_device_bytes_per_second(1e10);
  trace->mutable_link()->set_device_to_host_bytes_per_second(1e10);
  v1::MakePlanResponse response;
  grpc::ClientContext context;
  client_->Authenticate(&context);
  EXPECT_EQ(v1::PlanService::NewStub(client_->channel())
                ->MakePlan(&context, request, &response)
                .error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace geminid::service
