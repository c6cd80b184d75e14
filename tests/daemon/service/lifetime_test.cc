// Clients that die at any moment leave nothing behind, except memory that they asked to be
// retained.
#include <dirent.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::Bytes;
using ::geminid::testing::DaemonEnv;
using ::geminid::testing::DaemonEnvOptions;
using ::geminid::testing::GoodHello;
using ::geminid::testing::RawClient;
using ::geminid::testing::Receive;

int CountFds() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// Polls, because the event happens on another thread after a process has ended.
::testing::AssertionResult Eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return ::testing::AssertionFailure();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ::testing::AssertionSuccess();
}

bool EverythingFree(DaemonEnv* env) {
  return env->daemon().hub().Inspect([](const core::Engine& engine, const auto& sessions) {
    return sessions.empty() && engine.Check().ok() &&
           engine.ledger().Totals(core::kHostAccount).free_bytes ==
               engine.ledger().Totals(core::kHostAccount).capacity_bytes &&
           engine.ledger().Totals(core::DeviceAccount(shm::DeviceIndex{0})).free_bytes ==
               engine.ledger().Totals(core::DeviceAccount(shm::DeviceIndex{0})).capacity_bytes;
  });
}

// Attaches in a child process, waits until the daemon welcomes it, and kills it. The child uses
// only system calls, because gRPC does not survive a fork.
void AttachInAChildAndKill(const std::string& attach_socket, bool wait_for_welcome) {
  std::array<int, 2> ready;
  ASSERT_EQ(::pipe(ready.data()), 0);
  const shm::Hello hello = GoodHello();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    absl::StatusOr<base::UniqueFd> fd = os::ConnectSeqpacket(attach_socket);
    if (!fd.ok() || !os::SendMessage(*fd, Bytes(hello), {}).ok()) ::_exit(1);
    if (wait_for_welcome && Receive(*fd).end) ::_exit(2);
    const char byte = 1;
    (void)!::write(ready[1], &byte, 1);
    while (true) ::pause();
  }
  ::close(ready[1]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the child could not attach";
}

TEST(Lifetime, TwoHundredKilledClients_LeaveNothing) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const std::string attach_socket = absl::StrCat(env.socket(), shm::kAttachSuffix);
  const int before = CountFds();  // no client has attached yet, so nothing is about to be closed
  for (int i = 0; i < 200; ++i) AttachInAChildAndKill(attach_socket, i % 2 == 0);
  EXPECT_TRUE(Eventually([&] { return EverythingFree(&env); }));
  EXPECT_TRUE(Eventually([&] { return CountFds() == before; }))
      << before << " descriptors before, " << CountFds() << " after";
}

TEST(Lifetime, ConnectionClosedWithMemory_ReturnsItAll) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  int before = 0;
  for (int i = 0; i < 30; ++i) {
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket());
    ASSERT_TRUE(client.ok());
    v1::AllocateChunksRequest request;
    v1::ChunkSpec* chunk = request.add_chunks();
    chunk->set_kind(v1::CHUNK_KIND_WEIGHT);
    chunk->set_bytes(1 << 20);
    chunk->set_has_home(true);
    v1::AllocateChunksResponse response;
    grpc::ClientContext context;
    (*client)->Authenticate(&context);
    const grpc::Status status =
        v1::ChunkService::NewStub((*client)->channel())->Allocate(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    client->reset();
    ASSERT_TRUE(Eventually([&] { return EverythingFree(&env); }));
    if (i == 4) before = CountFds();  // gRPC has opened its permanent descriptors
  }
  EXPECT_TRUE(Eventually([&] { return CountFds() <= before; }))
      << before << " descriptors before, " << CountFds() << " after";
}

// A client with 1 MiB that is to be retained when the client dies.
std::unique_ptr<RawClient> ClientWithMemoryToKeep(const DaemonEnv& env) {
  shm::Hello hello = GoodHello();
  hello.death_policy = shm::DeathPolicy::kKeep;
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket(), hello);
  EXPECT_TRUE(client.ok()) << client.status();
  if (!client.ok()) return nullptr;
  v1::AllocateChunksRequest request;
  v1::ChunkSpec* chunk = request.add_chunks();
  chunk->set_kind(v1::CHUNK_KIND_WEIGHT);
  chunk->set_bytes(1 << 20);
  chunk->set_has_home(true);
  v1::AllocateChunksResponse response;
  grpc::ClientContext context;
  (*client)->Authenticate(&context);
  EXPECT_TRUE(
      v1::ChunkService::NewStub((*client)->channel())->Allocate(&context, request, &response).ok());
  return *std::move(client);
}

TEST(Lifetime, SessionToKeep_IsKept) {
  DaemonEnvOptions options;
  options.keep_time = "1h";
  DaemonEnv env;
  ASSERT_TRUE(env.Start(options).ok());
  ClientWithMemoryToKeep(env).reset();
  EXPECT_TRUE(Eventually([&] {
    return env.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
      const std::vector<core::SessionSnapshot> sessions = engine.Sessions();
      return sessions.size() == 1 && sessions[0].state == core::SessionState::kKept &&
             engine.ledger().Totals(core::kHostAccount).in_use_bytes == 1 << 20;
    });
  }));
}

TEST(Lifetime, KeptSession_IsGoneWhenItsTimeIsOverAndNotBefore) {
  constexpr auto kKept = std::chrono::milliseconds(300);
  DaemonEnvOptions options;
  options.keep_time = "300ms";
  DaemonEnv env;
  ASSERT_TRUE(env.Start(options).ok());
  std::unique_ptr<RawClient> client = ClientWithMemoryToKeep(env);
  const auto begin = std::chrono::steady_clock::now();
  client.reset();
  EXPECT_TRUE(Eventually([&] { return EverythingFree(&env); }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kKept);
}

TEST(Lifetime, DaemonWithAttachedSessions_StopsQuickly) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket());
    ASSERT_TRUE(client.ok());
    // An idle gRPC connection, for which a server could wait.
    v1::Status status;
    grpc::ClientContext context;
    ASSERT_TRUE(v1::AdminService::NewStub((*client)->channel())
                    ->GetStatus(&context, v1::GetStatusRequest(), &status)
                    .ok());
    clients.push_back(*std::move(client));
  }
  const auto begin = std::chrono::steady_clock::now();
  env.Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(Lifetime, SessionLimit_IsRefusedWithAReason) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  std::vector<std::unique_ptr<RawClient>> clients;
  absl::Status last;
  for (uint32_t i = 0; i <= core::EngineOptions().max_sessions / 2; ++i) {
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env.socket());
    last = client.status();
    if (client.ok()) clients.push_back(*std::move(client));
  }
  EXPECT_EQ(clients.size(), core::EngineOptions().max_sessions / 2);
  EXPECT_EQ(last.code(), absl::StatusCode::kResourceExhausted);
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] { return RawClient::Attach(env.socket()).ok(); }));
}

}  // namespace
}  // namespace geminid::service
