// Several tenants at one daemon: their accounts, and what each sees of the others.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/service/entry/daemon.h"
#include "daemon/service/watch/monitor.h"
#include "daemon/service/watch/pages.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/plan.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::DaemonEnvOptions;
using ::geminid::testing::RawClient;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The test sets the identity of the next client.
class Tenants : public ::testing::Test {
 protected:
  void StartWith(DaemonEnvOptions options) {
    options.identify = [this](const os::Peer&) {
      const std::lock_guard<std::mutex> lock(mutex_);
      return next_;
    };
    ASSERT_TRUE(env_.Start(options).ok());
  }
  void SetUp() override { StartWith({}); }

  void Be(const std::string& tenant, bool is_operator = false) {
    const std::lock_guard<std::mutex> lock(mutex_);
    next_ = {tenant, is_operator};
  }
  // A session. Its calls come from the same tenant.
  std::unique_ptr<RawClient> AttachAs(const std::string& tenant) {
    Be(tenant);
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
    EXPECT_TRUE(client.ok()) << client.status();
    if (!client.ok()) return nullptr;
    v1::Status status;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::AdminService::NewStub((*client)->channel())
                    ->GetStatus(&context, v1::GetStatusRequest(), &status)
                    .ok());
    return *std::move(client);
  }
  std::unique_ptr<v1::AdminService::Stub> AdminAs(const std::string& tenant, bool is_operator) {
    Be(tenant, is_operator);
    auto admin = v1::AdminService::NewStub(geminid::testing::NewChannel(env_.socket()));
    v1::Status status;
    grpc::ClientContext context;
    EXPECT_TRUE(admin->GetStatus(&context, v1::GetStatusRequest(), &status).ok());
    return admin;
  }

  grpc::Status Allocate(const RawClient& client, int chunks, uint64_t bytes, bool has_home = true) {
    v1::AllocateChunksRequest request;
    for (int i = 0; i < chunks; ++i) {
      v1::ChunkSpec* chunk = request.add_chunks();
      chunk->set_name(absl::StrCat("layer", i));
      chunk->set_kind(v1::CHUNK_KIND_GENERIC);
      chunk->set_bytes(bytes);
      chunk->set_has_home(has_home);
    }
    grpc::ClientContext context;
    client.Authenticate(&context);
    v1::AllocateChunksResponse response;
    return v1::ChunkService::NewStub(client.channel())->Allocate(&context, request, &response);
  }

  void Plan(const RawClient& client) {
    v1::MakePlanRequest request;
    v1::Trace* trace = request.mutable_trace();
    trace->set_arena_bytes(4 * kMiB);
    v1::TraceChunk* chunk = trace->add_chunks();
    chunk->set_device_bytes(kMiB);
    chunk->set_transfer_bytes(kMiB);
    trace->add_moments()->add_uses()->set_index(0);
    trace->mutable_link()->set_host_to_device_bytes_per_second(1e10);
    trace->mutable_link()->set_device_to_host_bytes_per_second(1e10);
    request.set_policy(v1::PLACEMENT_POLICY_AUTO);
    request.set_weights_change_between_iterations(true);
    grpc::ClientContext context;
    client.Authenticate(&context);
    v1::MakePlanResponse response;
    const grpc::Status status =
        v1::PlanService::NewStub(client.channel())->MakePlan(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  std::mutex mutex_;
  Identity next_{"uid:1", false};  // guarded by mutex_
  DaemonEnv env_;
};

TEST_F(Tenants, TraceChunksAndExplanation_AreTheOwnersAndTheOperators) {
  const auto owner = AttachAs("cgroup:/docker/a");
  ASSERT_NE(owner, nullptr);
  ASSERT_TRUE(Allocate(*owner, 1, kMiB).ok());
  Plan(*owner);
  const uint64_t session = owner->welcome().session_id;
  const auto ask = [&](v1::AdminService::Stub* admin) {
    std::vector<grpc::Status> answers;
    {
      v1::GetTraceRequest request;
      request.set_session(session);
      v1::TraceFile file;
      grpc::ClientContext context;
      answers.push_back(admin->GetTrace(&context, request, &file));
    }
    {
      v1::ExplainChunkRequest request;
      request.set_session(session);
      v1::ExplainChunkResponse response;
      grpc::ClientContext context;
      answers.push_back(admin->ExplainChunk(&context, request, &response));
    }
    v1::ListChunksRequest request;
    request.set_session(session);
    v1::ListChunksResponse response;
    grpc::ClientContext context;
    answers.push_back(admin->ListChunks(&context, request, &response));
    return answers;
  };
  for (const grpc::Status& status : ask(AdminAs("cgroup:/docker/a", false).get())) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  for (const grpc::Status& status : ask(AdminAs("uid:0", true).get())) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  for (const grpc::Status& status : ask(AdminAs("cgroup:/docker/b", false).get())) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr("is of tenant cgroup:/docker/a"));
  }
}

TEST_F(Tenants, Lists_ShowWhoHoldsMemoryAndNotWhatIsInIt) {
  const auto owner = AttachAs("uid:1");
  const auto stranger = AttachAs("uid:2");
  ASSERT_TRUE(owner != nullptr && stranger != nullptr);
  ASSERT_TRUE(Allocate(*owner, 3, kMiB).ok());
  ASSERT_TRUE(Allocate(*stranger, 2, kMiB).ok());
  Plan(*owner);
  const auto list = [](v1::AdminService::Stub* admin) {
    v1::ListChunksResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(admin->ListChunks(&context, v1::ListChunksRequest(), &response).ok());
    EXPECT_EQ(response.total(), static_cast<uint64_t>(response.chunks_size()));
    return response.chunks_size();
  };
  const auto admin = AdminAs("uid:2", false);
  EXPECT_EQ(list(admin.get()), 2);
  EXPECT_EQ(list(AdminAs("uid:3", false).get()), 0);
  EXPECT_EQ(list(AdminAs("uid:3", true).get()), 5);
  v1::ListSessionsResponse sessions;
  grpc::ClientContext context;
  ASSERT_TRUE(admin->ListSessions(&context, v1::ListSessionsRequest(), &sessions).ok());
  ASSERT_EQ(sessions.sessions_size(), 2);
  EXPECT_EQ(sessions.sessions(0).tenant(), "uid:1");
  EXPECT_EQ(sessions.sessions(0).host_bytes(), 3 * kMiB);
  EXPECT_EQ(sessions.sessions(0).planned_transfer_bytes(), 0u);
}

TEST_F(Tenants, QuotasSharesAndLabels_GoByTheTenant) {
  env_.Stop();
  DaemonEnvOptions options;
  config::TenantQuota& quota = options.quotas.emplace_back();
  quota.tenant = "cgroup:/docker";
  quota.host_bytes = kMiB;
  StartWith(options);
  const auto a = AttachAs("cgroup:/docker/a");
  const auto b = AttachAs("cgroup:/docker/b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_TRUE(Allocate(*a, 1, kMiB).ok());
  const grpc::Status status = Allocate(*a, 1, kMiB);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("tenant cgroup:/docker/a may have 1.0 MiB"));
  // Each of them has a limit of its own.
  EXPECT_TRUE(Allocate(*b, 1, kMiB).ok());
  env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
    EXPECT_EQ(engine.session_limit().UsedBy("cgroup:/docker/a"), 1u);
    EXPECT_EQ(engine.session_limit().UsedBy("cgroup:/docker/b"), 1u);
  });
  const std::string page = env_.MetricsPage();
  EXPECT_THAT(page, AllOf(HasSubstr("tenant=\"cgroup:/docker/a\",job_name=\"demo\""),
                          HasSubstr("tenant=\"cgroup:/docker/b\",job_name=\"demo\"")));
}

TEST_F(Tenants, AsManyChunksAsASessionCanHave_AreListedPageByPage) {
  const auto owner = AttachAs("uid:1");
  const auto other = AttachAs("uid:2");
  ASSERT_TRUE(owner != nullptr && other != nullptr);
  ASSERT_TRUE(Allocate(*owner, 10, kMiB, false).ok());
  const grpc::Status status = Allocate(*other, 65536, 64, false);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto admin = AdminAs("uid:2", false);
  std::set<uint32_t> seen;
  v1::ListChunksRequest request;
  request.set_limit(1'000'000);
  int pages = 0;
  do {
    v1::ListChunksResponse response;
    grpc::ClientContext context;
    const grpc::Status listed = admin->ListChunks(&context, request, &response);
    ASSERT_TRUE(listed.ok()) << listed.error_message();
    ASSERT_LE(static_cast<size_t>(response.chunks_size()), kPageEntries);
    EXPECT_EQ(response.total(), 65536u);
    for (const v1::ChunkInfo& chunk : response.chunks()) {
      EXPECT_EQ(chunk.session(), other->welcome().session_id);
      EXPECT_TRUE(seen.insert(chunk.chunk()).second) << chunk.chunk() << " comes twice";
    }
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(seen.size(), 65536u);
  EXPECT_EQ(pages, 66);
}

TEST_F(Tenants, SessionsAndPoolsBeyondAPage_AreListedToo) {
  std::vector<std::unique_ptr<RawClient>> clients;
  const auto owner = AttachAs("uid:1");
  ASSERT_NE(owner, nullptr);
  // More pools than fit on a page, one per call. The engine makes them, which needs no memory.
  constexpr size_t kPools = kPageEntries + 5;
  env_.daemon().hub().Inspect([&](const core::Engine& engine, const auto&) {
    auto& writable = const_cast<core::Engine&>(engine);
    const shm::SessionId session{owner->welcome().session_id};
    for (size_t i = 0; i < kPools; ++i) {
      ASSERT_TRUE(writable.Allocate(session, {{"c", shm::ChunkKind::kGeneric, 64, true}}).ok());
    }
  });
  const auto admin = AdminAs("uid:2", false);
  std::set<uint32_t> pools;
  v1::ListPoolsRequest request;
  int pages = 0;
  do {
    v1::ListPoolsResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(admin->ListPools(&context, request, &response).ok());
    for (const v1::PoolInfo& pool : response.pools()) pools.insert(pool.pool());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pools.size(), kPools);
  EXPECT_EQ(pages, 2);
}

// Containers come and go. A tenant whose calls never end does not keep the others in memory.
TEST_F(Tenants, TenantWithoutConnections_IsForgottenThoughAnotherHasCalls) {
  env_.Stop();
  DaemonEnvOptions options;
  options.shares.tenants = 2;
  StartWith(options);
  Be("cgroup:/stays");
  const auto channel = geminid::testing::NewChannel(env_.socket());
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/geminid.v1.MemoryService/GetLedger", &queue);
  call->StartCall(nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  for (int i = 0; i < 4; ++i) {
    Be(absl::StrCat("cgroup:/goes", i));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    grpc::Status status;
    do {
      grpc::ClientContext other;
      v1::Status answer;
      status = v1::AdminService::NewStub(geminid::testing::NewChannel(env_.socket()))
                   ->GetStatus(&other, v1::GetStatusRequest(), &answer);
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << status.error_message();
    } while (!status.ok());
  }
  context.TryCancel();
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

class CrowdedTenants : public Tenants {
 protected:
  void SetUp() override {}
  // Whether the present identity is served.
  bool IsServed() {
    grpc::ClientContext context;
    v1::Status status;
    return v1::AdminService::NewStub(geminid::testing::NewChannel(env_.socket()))
        ->GetStatus(&context, v1::GetStatusRequest(), &status)
        .ok();
  }
};

TEST_F(CrowdedTenants, WhereNoOtherTenantGetsIn_TheOperatorDoes) {
  DaemonEnvOptions options;
  options.shares.tenants = 2;
  StartWith(options);
  const auto first = AdminAs("uid:100000", false);
  const auto second = AdminAs("uid:100001", false);
  Be("uid:100002");
  EXPECT_FALSE(IsServed());
  Be("uid:0", true);
  EXPECT_TRUE(IsServed());
}

// Root of a container in a PID namespace that the daemon cannot inspect.
TEST_F(CrowdedTenants, WithTheOperatorsName_TakesNothingOfItsRate) {
  DaemonEnvOptions options;
  options.shares.connections_per_second = 1;
  StartWith(options);
  Be("uid:0");
  // More connections than the rate, but fewer than a process may have.
  for (int i = 0; i < 12; ++i) (void)IsServed();
  EXPECT_FALSE(IsServed());
  Be("uid:0", true);
  EXPECT_TRUE(IsServed());
}

TEST_F(Tenants, PageTokenOfNoPage_IsRefused) {
  const auto admin = AdminAs("uid:1", false);
  v1::ListChunksRequest request;
  request.set_page_token("page 2");
  v1::ListChunksResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(admin->ListChunks(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace geminid::service
