// GPUs as devices of the daemon, with real agents on a driver without a GPU.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/metrics_page.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/gpu/double/node.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::DaemonEnvOptions;
using ::geminid::testing::GoodHello;
using ::geminid::testing::RawClient;
using ::geminid::testing::RawMessage;
using ::geminid::testing::Receive;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGpuBytes = 100 * kMiB;

// Agents restart soon, and are never given up.
constexpr agent::SupervisionOptions kSoonAgain = {
    .health_period = core::Duration::Milliseconds(20),
    .first_pause = core::Duration::Milliseconds(1),
    .longest_pause = core::Duration::Milliseconds(1),
    .most_ends = 1000000};

// Gives up an agent that hangs. It may also give up an agent that waits for a processor.
constexpr agent::SupervisionOptions Impatient() {
  agent::SupervisionOptions options = kSoonAgain;
  options.answer_patience = core::Duration::Milliseconds(300);
  return options;
}

// Waits until the condition holds. A condition that never holds hangs the test.
template <typename Condition>
void Await(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

// A client in a process of its own, with an arena.
class Holder {
 public:
  Holder(const std::string& socket, uint64_t bytes) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const base::UniqueFd theirs(ends[1]);
    output_ = base::UniqueFd(ends[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    std::string program = GEMINID_ARENA_HOLDER;
    std::string path = socket;
    std::string size = absl::StrCat(bytes);
    char* const arguments[] = {program.data(), path.data(), size.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~Holder() { Kill(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  // Returns "ready", or the reason why the client has no arena.
  std::string Says() const {
    std::string line;
    char c = 0;
    while (::read(output_.get(), &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  void Signal(int signal) const { ::kill(pid_, signal); }
  void Kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  base::UniqueFd output_;
};

class GpuDevices : public ::testing::Test {
 protected:
  explicit GpuDevices(int instances = 0)
      : node_({.devices = 2,
               .memory_bytes = kGpuBytes,
               .instances = instances,
               .libcuda = GEMINID_CUDA_DOUBLE,
               .libnvml = GEMINID_NVML_DOUBLE}) {}

  absl::Status Start(const std::string& devices, agent::SupervisionOptions supervision = {}) {
    DaemonEnvOptions options;
    options.device = devices;
    options.agent_program = GEMINID_AGENT;
    options.agent_supervision = supervision;
    options.identify = [this](const os::Peer&) {
      return Identity{.tenant = absl::StrCat("uid:", tenant_.load()), .is_operator = true};
    };
    return env_.Start(options);
  }
  std::unique_ptr<RawClient> Attach(uint32_t device) {
    shm::Hello hello = GoodHello();
    hello.device = shm::DeviceIndex{device};
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket(), hello);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  static grpc::Status CreateArena(const RawClient& client, uint64_t bytes) {
    v1::CreateArenaRequest request;
    request.set_bytes(bytes);
    v1::CreateArenaResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    return v1::SessionService::NewStub(client.channel())->CreateArena(&context, request, &response);
  }
  static grpc::Status ReleaseArena(const RawClient& client) {
    v1::ReleaseArenaRequest request;
    v1::ReleaseArenaResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    return v1::SessionService::NewStub(client.channel())
        ->ReleaseArena(&context, request, &response);
  }
  static void Detach(const RawClient& client) {
    v1::DetachResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    EXPECT_TRUE(v1::SessionService::NewStub(client.channel())
                    ->Detach(&context, v1::DetachRequest(), &response)
                    .ok());
  }
  v1::Status ReadStatus() {
    v1::Status status;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::AdminService::NewStub(testing::NewChannel(env_.socket()))
                    ->GetStatus(&context, v1::GetStatusRequest(), &status)
                    .ok());
    return status;
  }
  v1::GpuInfo Gpu(int at = 0) { return ReadStatus().gpus(at); }
  std::string Fetch(const std::string& path) {
    return testing::FetchPage(env_.daemon().metrics_socket(), path);
  }
  void AwaitServing() {
    Await([this] { return Gpu().agent() == "serving"; });
  }
  // Free bytes of the device by the ledger.
  uint64_t FreeBytes(uint32_t device) {
    return env_.daemon().hub().Inspect([&](const core::Engine& engine, const auto&) {
      return engine.ledger().Totals(core::DeviceAccount(shm::DeviceIndex{device})).free_bytes;
    });
  }
  // Whether a new arena of the present tenant holds `byte` everywhere.
  bool ArenaIsAll(std::byte byte) {
    const auto client = Attach(0);
    EXPECT_TRUE(CreateArena(*client, 4 * kMiB).ok());
    const RawMessage slab = Receive(client->connection());
    const absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(slab.fds.at(0), 4 * kMiB);
    const bool all = std::all_of(mapping->data(), mapping->data() + mapping->bytes(),
                                 [byte](std::byte each) { return each == byte; });
    Detach(*client);
    return all;
  }
  static size_t OpenDescriptors() {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }

  gpu_double::Node node_;
  std::atomic<int> tenant_{1};
  DaemonEnv env_;
};

TEST_F(GpuDevices, AllGpus_AreDevicesOfNineTenthsWithTheirUuid) {
  ASSERT_TRUE(Start("cuda").ok());
  const v1::Status status = ReadStatus();
  ASSERT_EQ(status.devices_size(), 2);
  EXPECT_EQ(status.devices(1).kind(), v1::DEVICE_KIND_CUDA);
  EXPECT_EQ(status.devices(1).capacity_bytes(), 90 * kMiB);
  EXPECT_EQ("GPU-" + status.devices(1).uuid(), gpu_double::UuidOf(1));
  EXPECT_THAT(status.devices(1).name(), HasSubstr(" at 00000000:"));
  const auto client = Attach(1);
  EXPECT_EQ(client->welcome().device.kind, shm::DeviceKind::kCuda);
  EXPECT_EQ(client->welcome().device.granularity_bytes, 2 * kMiB);
}

// GPU 0 is divided into two instances of 50 MiB each.
class GpuDevicesOfInstances : public GpuDevices {
 protected:
  GpuDevicesOfInstances() : GpuDevices(/*instances=*/2) {}
};

TEST_F(GpuDevicesOfInstances, EachInstance_IsADeviceWithMemoryOfItsOwn) {
  ASSERT_TRUE(Start("cuda").ok());
  const v1::Status status = ReadStatus();
  ASSERT_EQ(status.devices_size(), 3);
  EXPECT_EQ("MIG-" + status.devices(0).uuid(), gpu_double::InstanceUuidOf(0));
  EXPECT_EQ("MIG-" + status.devices(1).uuid(), gpu_double::InstanceUuidOf(1));
  EXPECT_EQ("GPU-" + status.devices(2).uuid(), gpu_double::UuidOf(1));
  EXPECT_EQ(status.devices(1).capacity_bytes(), 44 * kMiB);  // nine tenths, in whole granules
  EXPECT_EQ(status.devices(2).capacity_bytes(), 90 * kMiB);
  const auto client = Attach(1);
  ASSERT_TRUE(CreateArena(*client, 40 * kMiB).ok());
  EXPECT_EQ(node_.used_bytes(2), 0u);  // the double's devices: GPUs, then instances
  EXPECT_EQ(node_.used_bytes(3), 40 * kMiB);
  const auto other = Attach(0);
  EXPECT_TRUE(CreateArena(*other, 40 * kMiB).ok());
  EXPECT_EQ(node_.used_bytes(2), 40 * kMiB);
}

TEST_F(GpuDevicesOfInstances, PciAddress_NamesTheNextInstanceOfThatGpu) {
  const std::string address = gpu_double::PciBusIdOf(0);
  ASSERT_TRUE(Start("cuda:0@" + address + ",cuda:1@" + address).ok());
  const v1::Status status = ReadStatus();
  ASSERT_EQ(status.devices_size(), 2);
  EXPECT_EQ("MIG-" + status.devices(0).uuid(), gpu_double::InstanceUuidOf(0));
  EXPECT_EQ("MIG-" + status.devices(1).uuid(), gpu_double::InstanceUuidOf(1));
}

TEST_F(GpuDevices, Arena_IsSlabsOfTheGpuAndComesBack) {
  ASSERT_TRUE(Start("host:0=8MiB,cuda:1=80MiB").ok());
  const auto client = Attach(1);
  ASSERT_TRUE(CreateArena(*client, 30 * kMiB + 1).ok());
  EXPECT_EQ(node_.used_bytes(0), 32 * kMiB);  // rounded up to the granularity
  EXPECT_EQ(FreeBytes(1), 48 * kMiB);
  EXPECT_EQ(FreeBytes(0), 8 * kMiB);
  RawMessage slab = Receive(client->connection());
  ASSERT_EQ(slab.fds.size(), 1u);
  shm::Memory memory;
  ASSERT_EQ(slab.bytes.size(), sizeof(memory));
  std::memcpy(&memory, slab.bytes.data(), sizeof(memory));
  EXPECT_EQ(memory.type, shm::MemoryType::kDeviceSlab);
  EXPECT_EQ(memory.bytes, 32 * kMiB);
  // A client that has reported the release may still hold descriptors; the daemon does not care.
  slab.fds.clear();
  ASSERT_TRUE(ReleaseArena(*client).ok());
  Await([this] { return node_.used_bytes(0) == 0 && FreeBytes(1) == 80 * kMiB; });
  ASSERT_TRUE(CreateArena(*client, 80 * kMiB).ok());
  (void)Receive(client->connection());
  Detach(*client);
  Await([this] { return node_.used_bytes(0) == 0 && FreeBytes(1) == 80 * kMiB; });
}

TEST_F(GpuDevices, MoreThanTheDeviceHas_IsRefusedByTheBooks) {
  ASSERT_TRUE(Start("cuda:0=16MiB").ok());
  const grpc::Status status = CreateArena(*Attach(0), 18 * kMiB);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("device 0: asked for 18.0 MiB"));
}

TEST_F(GpuDevices, GpuFullOfOthersMemory_IsRefusedWithNumbersAndNothingStaysCharged) {
  ASSERT_TRUE(Start("cuda:0=90MiB").ok());
  node_.SetMemoryBytes(0, 10 * kMiB);
  const auto client = Attach(0);
  const grpc::Status status = CreateArena(*client, 20 * kMiB);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("device 0 (cuda, 90.0 MiB)"),
                                            HasSubstr("10.0 MiB of 10.0 MiB are free")));
  Await([this] { return FreeBytes(0) == 90 * kMiB; });
  EXPECT_TRUE(CreateArena(*client, 10 * kMiB).ok());
}

TEST_F(GpuDevices, KilledAgent_CostsNothingThatWasHandedOut) {
  ASSERT_TRUE(Start("cuda:0=80MiB", kSoonAgain).ok());
  const auto client = Attach(0);
  ASSERT_TRUE(CreateArena(*client, 20 * kMiB).ok());
  RawMessage slab = Receive(client->connection());
  const int64_t first = Gpu().pid();
  ::kill(static_cast<pid_t>(first), SIGKILL);
  v1::GpuInfo gpu;
  Await([&] {
    gpu = Gpu();
    return gpu.agent() == "serving" && gpu.pid() != first;
  });
  EXPECT_EQ(gpu.restarts(), 1u);
  EXPECT_THAT(gpu.why(), HasSubstr("signal 9"));
  EXPECT_EQ(node_.used_bytes(0), 20 * kMiB);
  EXPECT_EQ(FreeBytes(0), 60 * kMiB);
  slab.fds.clear();
  Detach(*client);
  Await([this] { return node_.used_bytes(0) == 0 && FreeBytes(0) == 80 * kMiB; });
  EXPECT_TRUE(CreateArena(*Attach(0), 80 * kMiB).ok());
}

TEST_F(GpuDevices, HungDriver_CostsNewMemoryOfOneGpuAndNothingElse) {
  ASSERT_TRUE(Start("cuda:0=80MiB,host:1=8MiB", Impatient()).ok());
  const auto holds = Attach(0);
  Await([&] { return CreateArena(*holds, 20 * kMiB).ok(); });
  node_.Hang("cuMemCreate");
  const auto refused = Attach(0);
  const grpc::Status status = CreateArena(*refused, 20 * kMiB);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(
      status.error_message(),
      AllOf(HasSubstr("device 0 (cuda, 80.0 MiB) has no new memory"), HasSubstr("did not answer")));
  EXPECT_TRUE(CreateArena(*Attach(1), 8 * kMiB).ok());
  Await([this] { return FreeBytes(0) == 60 * kMiB; });
  node_.ClearFaults();
  Await([&] { return CreateArena(*refused, 20 * kMiB).ok(); });
  EXPECT_EQ(node_.used_bytes(0), 40 * kMiB);
}

TEST_F(GpuDevices, LostGpu_IsSaidAndServesAgainWhenItIsBack) {
  ASSERT_TRUE(Start("cuda:0=80MiB", kSoonAgain).ok());
  AwaitServing();
  node_.SetLost(0, true);
  v1::GpuInfo gpu;
  Await([&] {
    gpu = Gpu();
    return gpu.restarts() > 0 && gpu.agent() != "serving";
  });
  EXPECT_THAT(gpu.why(), HasSubstr("nvml"));
  node_.SetLost(0, false);
  AwaitServing();
  EXPECT_TRUE(CreateArena(*Attach(0), 20 * kMiB).ok());
}

TEST_F(GpuDevices, UnhealthyGpu_TakesNoNewSessionsAndSaysWhy) {
  ASSERT_TRUE(Start("cuda:0=80MiB,cuda:1=80MiB", kSoonAgain).ok());
  AwaitServing();
  const auto trains = Attach(0);
  ASSERT_TRUE(CreateArena(*trains, 20 * kMiB).ok());
  const auto came_before = Attach(0);
  node_.RaiseXid(0, 95);
  Await([this] { return Gpu().health() == "unhealthy"; });
  shm::Hello hello = GoodHello();
  hello.device = shm::DeviceIndex{0};
  const absl::Status refused = RawClient::Attach(env_.socket(), hello).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  const auto cause = AllOf(HasSubstr("device 0 (cuda, 80.0 MiB) takes no new sessions"),
                           HasSubstr("Xid 95 (memory error that was not contained)"));
  EXPECT_THAT(std::string(refused.message()), cause);
  const grpc::Status no_arena = CreateArena(*came_before, 20 * kMiB);
  EXPECT_EQ(no_arena.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(no_arena.error_message(), cause);
  const auto on_the_other = Attach(1);
  EXPECT_TRUE(CreateArena(*on_the_other, 70 * kMiB).ok());
  const auto by_itself = RawClient::Attach(env_.socket());
  ASSERT_TRUE(by_itself.ok()) << by_itself.status();
  EXPECT_EQ((*by_itself)->welcome().device.index, shm::DeviceIndex{1}) << "has less left";
  EXPECT_EQ(node_.used_bytes(0), 20 * kMiB) << "what was handed out stays";
  const v1::GpuInfo gpu = Gpu();
  EXPECT_EQ(gpu.xids(0).xid(), 95u);
  EXPECT_EQ(gpu.xids(0).times(), 1u);
  EXPECT_TRUE(gpu.xids_watched());
  Await([this] { return Gpu(1).health() == "healthy"; });
}

TEST_F(GpuDevices, MemoryFaultsOfAGpu_AreShownAndEndWithTheirCause) {
  ASSERT_TRUE(Start("cuda:0=80MiB", kSoonAgain).ok());
  AwaitServing();
  node_.SetUncorrectedErrors(0, 3, 5);
  node_.SetRowRemaps(0, /*pending=*/true, /*failed=*/false);
  Await([this] { return Gpu().health() == "degraded"; });
  v1::GpuInfo gpu = Gpu();
  EXPECT_EQ(gpu.uncorrected_errors(), 3u);
  EXPECT_EQ(gpu.uncorrected_errors_ever(), 5u);
  EXPECT_TRUE(gpu.row_remap_pending());
  EXPECT_TRUE(gpu.has_retired_pages_pending());
  EXPECT_TRUE(CreateArena(*Attach(0), 20 * kMiB).ok());
  node_.SetRowRemaps(0, /*pending=*/false, /*failed=*/true);
  Await([this] { return Gpu().health() == "unhealthy"; });
  node_.SetUncorrectedErrors(0, 0, 5);
  node_.SetRowRemaps(0, false, false);
  Await([this] { return Gpu().health() == "healthy"; });
  node_.SetSaysNoHealth(true);
  Await([this] { return !Gpu().has_uncorrected_errors(); });
  EXPECT_FALSE(Gpu().has_row_remap_failed());
}

TEST_F(GpuDevices, UnhealthyGpu_IsInTheProbesAndMetrics) {
  ASSERT_TRUE(Start("cuda:0=80MiB", kSoonAgain).ok());
  AwaitServing();
  node_.SetUncorrectedErrors(0, 3, 5);
  node_.RaiseXid(0, 119);
  Await([this] { return Gpu().health() == "unhealthy"; });
  const std::string page = Fetch("/metrics");
  for (const char* line : {"geminid_gpu_health{device=\"0\",health=\"unhealthy\"} 1\n",
                           "geminid_gpu_health{device=\"0\",health=\"healthy\"} 0\n",
                           "geminid_gpu_uncorrected_errors{device=\"0\",since=\"load\"} 3\n",
                           "geminid_gpu_uncorrected_errors{device=\"0\",since=\"ever\"} 5\n",
                           "geminid_gpu_xids_total{device=\"0\",xid=\"119\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(Fetch("/healthz"), AllOf(HasSubstr("503"), HasSubstr("Xid 119")));
  EXPECT_THAT(Fetch("/readyz"), HasSubstr("503")) << "there is no other device";
}

TEST_F(GpuDevices, KilledClient_IsChargedUntilItsProcessHasEnded) {
  ASSERT_TRUE(Start("cuda:0=80MiB").ok());
  Holder holder(env_.socket(), 40 * kMiB);
  ASSERT_EQ(holder.Says(), "ready");
  EXPECT_EQ(node_.used_bytes(0), 40 * kMiB);
  holder.Kill();
  Await([this] { return node_.used_bytes(0) == 0 && FreeBytes(0) == 80 * kMiB; });
}

TEST_F(GpuDevices, SecondTenant_GetsZerosWhateverTheDriverHas) {
  node_.SetFreshByte(0x5A);
  ASSERT_TRUE(Start("cuda:0=80MiB").ok());
  EXPECT_TRUE(ArenaIsAll(std::byte{0x5A}));  // the driver is trusted
  tenant_ = 2;
  EXPECT_TRUE(ArenaIsAll(std::byte{0}));
  tenant_ = 1;
  EXPECT_TRUE(ArenaIsAll(std::byte{0}));
}

TEST_F(GpuDevices, TenantAfterARestartOfTheDaemon_GetsZerosToo) {
  node_.SetFreshByte(0x5A);
  ASSERT_TRUE(Start("cuda:0=80MiB").ok());
  EXPECT_TRUE(ArenaIsAll(std::byte{0x5A}));
  env_.Stop();
  tenant_ = 2;
  ASSERT_TRUE(Start("cuda:0=80MiB").ok());
  EXPECT_TRUE(ArenaIsAll(std::byte{0}));
}

TEST_F(GpuDevices, WithoutADriver_TheOtherDevicesAreServed) {
  ::setenv("GEMINID_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  ASSERT_TRUE(Start("cuda:0=80MiB,host:1=8MiB").ok());
  const v1::Status status = ReadStatus();
  EXPECT_EQ(status.devices(0).capacity_bytes(), 0u);
  ASSERT_EQ(status.gpus_size(), 1);
  EXPECT_EQ(status.gpus(0).agent(), "missing");
  EXPECT_THAT(status.gpus(0).why(), HasSubstr("/nowhere/libnvidia-ml.so.1"));
  const auto by_itself = RawClient::Attach(env_.socket());
  ASSERT_TRUE(by_itself.ok());
  EXPECT_EQ((*by_itself)->welcome().device.index, shm::DeviceIndex{1});
  EXPECT_TRUE(CreateArena(**by_itself, 4 * kMiB).ok());
  env_.Stop();
  const absl::Status nothing = Start("cuda");
  EXPECT_TRUE(absl::IsFailedPrecondition(nothing)) << nothing;
  EXPECT_THAT(std::string(nothing.message()),
              AllOf(HasSubstr("no device can be served"), HasSubstr("/nowhere/libnvidia-ml.so.1")));
}

TEST_F(GpuDevices, ManyKills_LeaveDescriptorsAndMemoryWhereTheyWere) {
  ASSERT_TRUE(Start("cuda:0=80MiB", kSoonAgain).ok());
  AwaitServing();
  {
    const auto warm = Attach(0);
    ASSERT_TRUE(CreateArena(*warm, 8 * kMiB).ok());
    Detach(*warm);
  }
  Await([this] { return node_.used_bytes(0) == 0 && env_.daemon().hub().AllSessions().empty(); });
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 8; ++i) {
    Holder holder(env_.socket(), 40 * kMiB);
    const std::string said = holder.Says();
    if (i % 2 == 0) ::kill(static_cast<pid_t>(Gpu().pid()), SIGKILL);
    EXPECT_EQ(said, "ready");
    holder.Kill();
    Await([this] { return node_.used_bytes(0) == 0 && FreeBytes(0) == 80 * kMiB; });
    AwaitServing();
  }
  Await([&] { return env_.daemon().hub().AllSessions().empty() && OpenDescriptors() <= before; });
}

}  // namespace
}  // namespace geminid::service
