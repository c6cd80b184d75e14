// A session on a GPU, end to end, on a double of the driver. The daemon, its agent, the session and
// its device share the double's node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/metrics_page.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/gpu/double/node.h"

namespace geminid {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kArenaBytes = 64 * kMiB;

class CudaSession : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::DaemonEnvOptions options;
    options.device = "cuda:0=128MiB";
    options.agent_program = GEMINID_AGENT;
    ASSERT_TRUE(env_.Start(options).ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = kArenaBytes;
    // The agent may not be ready yet.
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
    while (absl::IsUnavailable(session.status())) session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  ChunkHandle Allocate(uint64_t bytes) {
    absl::StatusOr<std::vector<ChunkHandle>> chunks =
        session_->Allocate({{"one", ChunkKind::kGeneric, bytes, /*has_home=*/true}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    return chunks.ok() ? chunks->front() : ChunkHandle{};
  }

  void ExpectRoundTrip(uint64_t bytes) {
    const ChunkHandle chunk = Allocate(bytes);
    std::vector<std::byte> sent(bytes);
    for (uint64_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 2654435761u >> 9);
    std::memcpy(chunk.home, sent.data(), bytes);
    absl::StatusOr<Lease> lease = session_->Use(chunk.id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(session_->HostAddress(lease->data), nullptr);
    std::memset(chunk.home, 0, bytes);
    lease->MarkDirty();
    lease->Release();
    const absl::Status back = session_->WriteBack(chunk.id).Wait();
    ASSERT_TRUE(back.ok()) << back;
    EXPECT_EQ(std::memcmp(chunk.home, sent.data(), bytes), 0);
    ASSERT_TRUE(session_->Drop(chunk.id).Wait().ok());
  }

  // The pid of the only agent; 0: none runs.
  pid_t AgentPid() { return env_.daemon().hub().gpus()->Read().begin()->second.pid; }

  static gpu_double::Node& ThisNode() {
    static auto* const node = new gpu_double::Node({.memory_bytes = 256 * kMiB,
                                                    .libcuda = GEMINID_CUDA_DOUBLE,
                                                    .libnvml = GEMINID_NVML_DOUBLE,
                                                    .kernels = GEMINID_DOUBLE_KERNELS});
    return *node;
  }

  gpu_double::Node& node_ = ThisNode();  // before the daemon starts its agent
  testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
};

TEST_F(CudaSession, Chunk_GoesToTheGpuAndComesBack) {
  EXPECT_EQ(session_->device_description().kind, DeviceKind::kCuda);
  EXPECT_EQ(node_.used_bytes(0), kArenaBytes);
  ExpectRoundTrip(100);
  ExpectRoundTrip(3 * kMiB + 17);
}

// This is the case if memory needs its exporter or a process that has imported it (G2 answered with
// no). Then only the slabs that nobody has imported yet end with an agent.
TEST_F(CudaSession, AgentThatDiesBeforeItsSlabIsImported_CostsThatAttachAndNothingElse) {
  node_.SetMemoryGoesWithExporter(true);
  constexpr char kImport[] = "cuMemImportFromShareableHandle";
  const uint64_t imports = node_.calls(kImport);
  node_.Hang(kImport);
  std::thread killer([&] {
    while (node_.calls(kImport) == imports) std::this_thread::yield();
    const pid_t agent = AgentPid();
    kill(agent, SIGKILL);
    while (AgentPid() == agent) std::this_thread::yield();  // the daemon has reaped it
    node_.EndHang(kImport);
  });
  ConnectOptions connect;
  connect.socket = env_.socket();
  connect.device_memory_bytes = kArenaBytes;
  const absl::Status lost = Session::Connect(connect).status();
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("lost before this process had it"));
  // The earlier session, whose slab was imported, still has its memory.
  ExpectRoundTrip(3 * kMiB + 17);
  // The next session gets memory, too.
  absl::StatusOr<std::unique_ptr<Session>> next = Session::Connect(connect);
  while (absl::IsUnavailable(next.status())) next = Session::Connect(connect);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(node_.used_bytes(0), 2 * kArenaBytes);
  next->reset();
  session_.reset();
  while (node_.used_bytes(0) != 0) std::this_thread::yield();
}

// The rank's client counts the registration. The status and the metrics show it to the operator.
TEST_F(CudaSession, RegistrationOfHostMemory_IsShownByTheDaemon) {
  const std::unique_ptr<v1::AdminService::Stub> admin =
      v1::AdminService::NewStub(testing::NewChannel(env_.socket()));
  const auto read = [&] {
    v1::Status status;
    grpc::ClientContext context;
    EXPECT_TRUE(admin->GetStatus(&context, v1::GetStatusRequest(), &status).ok());
    EXPECT_EQ(status.host_registrations_size(), 1);
    return status.host_registrations(0);
  };
  const auto await = [&](uint64_t registered, uint64_t refused) {
    v1::HostRegistration now;
    do now = read();
    while (now.registered_pieces() != registered || now.refused_pieces() != refused);
    return now;
  };
  const v1::HostRegistration first = await(1, 0);  // as the session reports it
  EXPECT_EQ(first.pieces(), 1u);
  EXPECT_EQ(first.bytes(), first.registered_bytes());

  node_.Hang("cuMemHostRegister");
  Allocate(3 * kMiB);
  const v1::HostRegistration waits = read();
  EXPECT_EQ(waits.session(), session_->id());
  EXPECT_EQ(waits.pieces(), 2u);
  EXPECT_EQ(waits.bytes() - first.bytes(), 3 * kMiB);
  EXPECT_EQ(waits.registered_bytes(), first.bytes());
  const std::string page = testing::FetchPage(env_.daemon().metrics_socket(), "/metrics");
  const std::string rank = "\",rank=\"0\",session=\"" + std::to_string(session_->id());
  EXPECT_THAT(page, HasSubstr(rank + "\",state=\"waiting\"} " + std::to_string(3 * kMiB) + "\n"));
  EXPECT_THAT(page, HasSubstr(rank + "\",state=\"waiting\"} 1\n"));
  node_.EndHang("cuMemHostRegister");
  EXPECT_EQ(await(2, 0).registered_bytes(), waits.bytes());

  node_.Fail("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY);
  const ChunkHandle refused = Allocate(2 * kMiB);
  EXPECT_EQ(await(2, 1).refused_bytes(), 2 * kMiB);
  node_.ClearFaults();
  ASSERT_TRUE(session_->Free(std::array{refused.id}).ok());
  EXPECT_EQ(await(2, 0).pieces(), 2u);
}

TEST_F(CudaSession, MemoryOfTheGpu_ComesBackWithTheSession) {
  session_.reset();
  while (node_.used_bytes(0) != 0) std::this_thread::yield();
}

}  // namespace
}  // namespace geminid
