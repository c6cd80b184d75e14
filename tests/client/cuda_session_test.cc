// A session on a GPU, end to end on a driver without one: the daemon, its agent, the session and
// its device share the double's node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/service/daemon.h"
#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"
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
    // Its agent may not be ready yet.
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

  // Of the only agent; 0: none runs.
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

// As it may be where memory needs its exporter, or somebody who has imported it (G2 answered with
// no): the only slabs that end with an agent are those that nobody has imported yet.
TEST_F(CudaSession, AgentThatDiesBeforeItsSlabIsImported_CostsThatAttachAndNothingElse) {
  node_.SetMemoryGoesWithExporter(true);
  constexpr char kImport[] = "cuMemImportFromShareableHandle";
  const uint64_t imports = node_.calls(kImport);
  node_.Hang(kImport);
  std::thread killer([&] {
    while (node_.calls(kImport) == imports) std::this_thread::yield();
    const pid_t agent = AgentPid();
    kill(agent, SIGKILL);
    while (AgentPid() == agent) std::this_thread::yield();  // it was waited for
    node_.EndHang(kImport);
  });
  ConnectOptions connect;
  connect.socket = env_.socket();
  connect.device_memory_bytes = kArenaBytes;
  const absl::Status lost = Session::Connect(connect).status();
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("lost before this process had it"));
  // The session that was there, whose slab's agent is the same, has its memory still.
  ExpectRoundTrip(3 * kMiB + 17);
  // And so does the next one get some.
  absl::StatusOr<std::unique_ptr<Session>> next = Session::Connect(connect);
  while (absl::IsUnavailable(next.status())) next = Session::Connect(connect);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(node_.used_bytes(0), 2 * kArenaBytes);
  next->reset();
  session_.reset();
  while (node_.used_bytes(0) != 0) std::this_thread::yield();
}

TEST_F(CudaSession, MemoryOfTheGpu_ComesBackWithTheSession) {
  session_.reset();
  while (node_.used_bytes(0) != 0) std::this_thread::yield();
}

}  // namespace
}  // namespace geminid
