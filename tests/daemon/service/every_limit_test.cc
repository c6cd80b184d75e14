// Every limit of a tenant. A client that exceeds a limit is told its name, its tenant and how to
// raise it. The refusal is counted.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <map>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/service/entry/daemon.h"
#include "daemon/service/watch/monitor.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::DaemonEnvOptions;
using ::geminid::testing::GoodHello;
using ::geminid::testing::NewChannel;
using ::geminid::testing::RawClient;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr char kTenant[] = "uid:77";

// A daemon that takes every client for kTenant, and a record of its messages.
class World {
 public:
  explicit World(DaemonEnvOptions options) {
    options.log_level = "warning";
    // The caller is the operator, who is always admitted, unless a case changes it.
    options.identify = [this](const os::Peer&) {
      const char* const name = tenant.load();
      return Identity{name, name == std::string_view(kTenant)};
    };
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(env.Start(options).ok());
  }
  ~World() {
    if (!told_) ::testing::internal::GetCapturedStderr();
  }

  void Attach() {
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket());
    if (client.ok()) {
      clients.push_back(*std::move(client));
    } else {
      Say(std::string(client.status().message()));
    }
  }
  // Opens an attach connection that reads nothing, and sends a hello if `hello`.
  void Connect(bool hello) {
    absl::StatusOr<base::UniqueFd> fd =
        os::ConnectSeqpacket(absl::StrCat(env.socket(), shm::kAttachSuffix));
    ASSERT_TRUE(fd.ok());
    if (hello) (void)os::SendMessage(*fd, geminid::testing::Bytes(GoodHello()), {});
    sockets.push_back(*std::move(fd));
  }
  void Call() {
    v1::Status status;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    channels.push_back(NewChannel(env.socket()));
    Say(v1::AdminService::NewStub(channels.back())
            ->GetStatus(&context, v1::GetStatusRequest(), &status)
            .error_message());
  }
  void List() {
    v1::ListSessionsResponse response;
    grpc::ClientContext context;
    if (channels.empty()) channels.push_back(NewChannel(env.socket()));
    Say(v1::AdminService::NewStub(channels.back())
            ->ListSessions(&context, v1::ListSessionsRequest(), &response)
            .error_message());
  }
  void Allocate(int chunks, uint64_t bytes) {
    v1::AllocateChunksRequest request;
    for (int i = 0; i < chunks; ++i) {
      v1::ChunkSpec* chunk = request.add_chunks();
      chunk->set_kind(v1::CHUNK_KIND_GENERIC);
      chunk->set_bytes(bytes);
      chunk->set_has_home(true);
    }
    grpc::ClientContext context;
    clients[0]->Authenticate(&context);
    v1::AllocateChunksResponse response;
    Say(v1::ChunkService::NewStub(clients[0]->channel())
            ->Allocate(&context, request, &response)
            .error_message());
  }
  void CreateArena(uint64_t bytes) {
    v1::CreateArenaRequest request;
    request.set_bytes(bytes);
    grpc::ClientContext context;
    clients[0]->Authenticate(&context);
    v1::CreateArenaResponse response;
    Say(v1::SessionService::NewStub(clients[0]->channel())
            ->CreateArena(&context, request, &response)
            .error_message());
  }
  // A job that waits for its second rank.
  void AdmitOneOfTwo() {
    Attach();
    v1::AdmitRequest request;
    request.set_ranks(2);
    request.set_may_wait(true);
    grpc::ClientContext context;
    clients.back()->Authenticate(&context);
    v1::AdmitResponse response;
    Say(v1::SessionService::NewStub(clients.back()->channel())
            ->Admit(&context, request, &response)
            .error_message());
  }
  // Begins a call whose message never arrives.
  void Hang(const std::string& path, bool with_token) {
    Hanging& call = *hanging.emplace_back(std::make_unique<Hanging>());
    if (with_token) clients[0]->Authenticate(&call.context);
    channels.push_back(NewChannel(env.socket()));
    grpc::GenericStub stub(channels.back());
    call.stream = stub.PrepareCall(&call.context, path, &call.queue);
    call.stream->StartCall(nullptr);
    void* tag;
    bool ok;
    call.queue.Next(&tag, &ok);
  }

  void Say(const std::string& words) { said += words + "\n"; }
  // All messages that the daemon sent to clients and wrote to its log.
  std::string Words() {
    hanging.clear();
    clients.clear();
    env.Stop();
    told_ = true;
    return said + ::testing::internal::GetCapturedStderr();
  }
  double Counted(const std::string& limit) {
    double times = 0;
    const auto add = [&](const std::vector<core::Refusals::Row>& rows) {
      for (const core::Refusals::Row& row : rows) {
        if (row.limit == limit) times += static_cast<double>(row.times);
      }
    };
    add(env.daemon().hub().limits().Refused());
    env.daemon().hub().Inspect(
        [&](const core::Engine& engine, const auto&) { add(engine.refusals().Read()); });
    return times;
  }

  struct Hanging {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    ~Hanging() {
      context.TryCancel();
      queue.Shutdown();
      void* tag;
      bool ok;
      while (queue.Next(&tag, &ok)) {
      }
    }
  };
  std::atomic<const char*> tenant{kTenant};
  DaemonEnv env;
  std::string said;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<base::UniqueFd> sockets;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<Hanging>> hanging;

 private:
  bool told_ = false;
};

struct Case {
  std::string limit;
  std::function<void(DaemonEnvOptions*)> configure;
  // Exceeds the limit a little; called until the limit has been counted.
  std::function<void(World*)> exceed;
};

std::vector<Case> Cases() {
  const auto share = [](uint32_t config::TenantShares::*field, uint32_t value) {
    return [=](DaemonEnvOptions* options) { options->shares.*field = value; };
  };
  const auto quota = [](std::optional<uint64_t> config::TenantQuota::*field) {
    return [=](DaemonEnvOptions* options) {
      config::TenantQuota& line = options->quotas.emplace_back();
      line.tenant = kTenant;
      line.*field = kMiB;
    };
  };
  const auto attached = [](World* world) {
    if (world->clients.empty()) world->Attach();
  };
  using config::TenantShares;
  return {
      {"calls_per_tenant", share(&TenantShares::calls, 2),
       [](World* world) {
         world->Hang("/geminid.v1.MemoryService/GetLedger", false);
         if (world->hanging.size() > 2) world->Call();
       }},
      {"calls_per_second", share(&TenantShares::calls_per_second, 1),
       [](World* world) { world->Call(); }},
      {"listings_per_second", share(&TenantShares::listings_per_second, 1),
       [](World* world) { world->List(); }},
      {"long_calls_per_tenant", share(&TenantShares::long_calls, 1),
       [=](World* world) {
         attached(world);
         world->Hang("/geminid.v1.ChunkService/Allocate", true);
       }},
      {"connections_per_tenant", share(&TenantShares::connections, 2),
       [](World* world) {
         absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(SOCK_STREAM, world->env.socket());
         if (fd.ok()) world->sockets.push_back(*std::move(fd));
       }},
      {"connections_per_second", share(&TenantShares::connections_per_second, 1),
       [](World* world) { (void)os::ConnectUnix(SOCK_STREAM, world->env.socket()); }},
      {"attaches_per_second", share(&TenantShares::attaches_per_second, 1),
       [](World* world) { world->Attach(); }},
      {"handshakes_per_tenant", share(&TenantShares::handshakes, 2),
       [](World* world) { world->Connect(false); }},
      {"log_lines_per_second", share(&TenantShares::log_lines_per_second, 1),
       [](World* world) {
         shm::Hello bad = GoodHello();
         bad.rank = -1;
         (void)RawClient::Attach(world->env.socket(), bad);
       }},
      {"descriptors_in_flight_per_tenant", share(&TenantShares::descriptors_in_flight, 6),
       [](World* world) {
         if (world->sockets.empty()) return world->Connect(true);
         world->Attach();
       }},
      {"waiting_jobs_per_tenant", share(&TenantShares::waiting_jobs, 1),
       [](World* world) { world->AdmitOneOfTwo(); }},
      {"tenants", share(&TenantShares::tenants, 1),
       [](World* world) {
         world->Call();
         world->tenant.store("uid:78");
         const absl::StatusOr<base::UniqueFd> fd =
             os::ConnectUnix(SOCK_STREAM, world->env.socket());
         // Waits for its end. Before it the daemon may not have asked for the identity.
         if (fd.ok()) (void)geminid::testing::Receive(*fd);
         world->tenant.store(kTenant);
       }},
      {"sessions", [](DaemonEnvOptions* options) { options->sessions = 2; },
       [](World* world) { world->Attach(); }},
      {"chunks", [](DaemonEnvOptions* options) { options->chunks = 4; },
       [=](World* world) {
         attached(world);
         world->Allocate(3, 64);
       }},
      {"host_memory", quota(&config::TenantQuota::host_bytes),
       [=](World* world) {
         attached(world);
         world->Allocate(1, 2 * kMiB);
       }},
      {"device_memory", quota(&config::TenantQuota::device_bytes),
       [=](World* world) {
         attached(world);
         world->CreateArena(2 * kMiB);
       }},
  };
}

TEST(EveryLimit, OfTheConfiguration_HasACase) {
  std::vector<std::string> tried;
  for (const Case& limit : Cases()) tried.push_back(limit.limit);
  for (const config::ShareKey& key : config::kShareKeys) {
    EXPECT_THAT(tried, ::testing::Contains(key.key));
  }
}

class EachLimit : public ::testing::TestWithParam<Case> {};

TEST_P(EachLimit, Exceeded_SaysItsNameWhoseItIsAndHowToRaiseItAndIsCounted) {
  const Case& limit = GetParam();
  DaemonEnvOptions options;
  limit.configure(&options);
  World world(options);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (world.Counted(limit.limit) == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << world.Words();
    limit.exceed(&world);
  }
  const std::string page = world.env.MetricsPage();
  const std::string labels =
      absl::StrCat("geminid_limit_refused_total{limit=\"", limit.limit, "\",tenant=\"uid:7");
  EXPECT_THAT(page, HasSubstr(labels));
  // The next line names the lines that were left out: the rate lets it pass at once.
  options.shares.log_lines_per_second = 1'000'000;
  if (limit.limit == config::kLogRate.key) world.env.daemon().hub().limits().Set(options.shares);
  for (int i = 0; i < 3; ++i) limit.exceed(&world);
  const std::string words = world.Words();
  EXPECT_THAT(words, HasSubstr("uid:7"));
  EXPECT_THAT(words, HasSubstr(absl::StrCat("raise ", limit.limit)));
  EXPECT_THAT(words, HasSubstr("configuration"));
}

INSTANTIATE_TEST_SUITE_P(All, EachLimit, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.limit; });

}  // namespace
}  // namespace geminid::service
