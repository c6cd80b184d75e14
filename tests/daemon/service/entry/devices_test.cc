// A daemon with several host devices, and one on a machine of two NUMA nodes, from a client's point
// of view.
#include "daemon/service/entry/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/config/settings.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/fake_numa.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::FakeNuma;
using ::geminid::testing::GoodHello;
using ::geminid::testing::RawClient;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

config::Settings SettingsWith(std::vector<config::DeviceSetting> devices) {
  config::Settings settings;
  settings.socket = "/run/s";
  settings.devices = std::move(devices);
  return settings;
}

os::Machine TwoNodes() {
  os::Machine machine;
  machine.id = "machine";
  machine.nodes = {{0, 4 * kGiB, 4 * kGiB}, {1, 2 * kGiB, 2 * kGiB}};
  return machine;
}

absl::StatusOr<std::vector<core::DeviceDescription>> Describe(const config::Settings& settings,
                                                              const os::Machine& machine) {
  std::vector<gpus::NodeDevice> devices;
  for (const config::DeviceSetting& setting : settings.devices) {
    devices.push_back({.setting = setting});
  }
  return DescribeDevices(devices, settings.socket, machine);
}

TEST(DescribeDevices, HostDevice_HasWhatWasConfigured) {
  const auto devices = Describe(SettingsWith({{.bytes = 7 * kMiB}}), TwoNodes());
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(devices->front().capacity_bytes, 7 * kMiB);
  EXPECT_EQ(devices->front().kind, shm::DeviceKind::kHost);
  EXPECT_EQ(devices->front().numa_node, shm::kNoNumaNode);
  EXPECT_EQ(devices->front().granularity_bytes, 4096u);
}

TEST(DescribeDevices, Uuids_AreStableAndDifferByDeviceSocketAndMachine) {
  const config::Settings two = SettingsWith({{.bytes = kMiB}, {.bytes = kMiB}});
  config::Settings elsewhere = two;
  elsewhere.socket = "/run/t";
  os::Machine other = TwoNodes();
  other.id = "other";
  std::set<shm::Uuid> uuids;
  for (const auto& devices : {*Describe(two, TwoNodes()), *Describe(elsewhere, TwoNodes()),
                              *Describe(two, other), *Describe(two, TwoNodes())}) {
    for (const core::DeviceDescription& device : devices) uuids.insert(device.uuid);
  }
  EXPECT_EQ(uuids.size(), 6u);
}

TEST(DescribeDevices, NodeThatIsMissingOrTooSmall_IsRefusedWithNumbers) {
  const absl::Status missing =
      Describe(SettingsWith({{.bytes = kMiB, .numa_node = 2}}), TwoNodes()).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr("device 0 (host, 1.0 MiB) is configured on NUMA node 2"),
                    HasSubstr("node 0: 4.0 GiB, node 1: 2.0 GiB")));
  const absl::Status full =
      Describe(
          SettingsWith({{.bytes = kGiB, .numa_node = 1}, {.bytes = kGiB + kMiB, .numa_node = 1}}),
          TwoNodes())
          .status();
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr("NUMA node 1"), HasSubstr("device 1"), HasSubstr("node 1: 2.0 GiB")));
}

shm::Hello HelloOf(int local_rank, int local_world_size,
                   shm::DeviceIndex device = shm::kAnyDevice) {
  shm::Hello hello = GoodHello();
  hello.rank = hello.local_rank = local_rank;
  hello.world_size = hello.local_world_size = local_world_size;
  hello.device = device;
  return hello;
}

class Devices : public ::testing::Test {
 protected:
  std::unique_ptr<RawClient> Attach(const shm::Hello& hello) {
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
  static grpc::Status AllocateHome(const RawClient& client, uint64_t bytes) {
    v1::AllocateChunksRequest request;
    v1::ChunkSpec* const chunk = request.add_chunks();
    chunk->set_kind(v1::CHUNK_KIND_WEIGHT);
    chunk->set_bytes(bytes);
    chunk->set_has_home(true);
    v1::AllocateChunksResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    return v1::ChunkService::NewStub(client.channel())->Allocate(&context, request, &response);
  }

  DaemonEnv env_;
};

TEST_F(Devices, Welcome_DescribesTheDeviceOfTheLocalRank) {
  ASSERT_TRUE(env_.Start({.device = "host:0=8MiB,host:1=16MiB"}).ok());
  std::vector<uint32_t> given;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int rank = 0; rank < 4; ++rank) {
    clients.push_back(Attach(HelloOf(rank, 4)));
    ASSERT_NE(clients.back(), nullptr);
    given.push_back(shm::Value(clients.back()->welcome().device.index));
  }
  EXPECT_THAT(given, ElementsAre(0, 1, 0, 1));
  const shm::DeviceDescription& second = clients[1]->welcome().device;
  EXPECT_EQ(second.kind, shm::DeviceKind::kHost);
  EXPECT_EQ(second.capacity_bytes, 16 * kMiB);
  EXPECT_STREQ(second.name, "host device 1");
  EXPECT_NE(second.uuid, clients[0]->welcome().device.uuid);
  EXPECT_EQ(second.uuid, clients[3]->welcome().device.uuid);
}

TEST_F(Devices, DeviceThatIsNotThere_IsRefusedWithThoseThatAre) {
  ASSERT_TRUE(env_.Start({.device = "host:0=8MiB,host:1=16MiB"}).ok());
  const absl::Status status =
      RawClient::Attach(env_.socket(), HelloOf(0, 1, shm::DeviceIndex{2})).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("there is no device 2; this daemon has device 0 (host, 8.0 MiB), device 1 "
                        "(host, 16.0 MiB)"));
}

TEST_F(Devices, FullDevice_IsNamedWhileTheOtherStillServes) {
  ASSERT_TRUE(env_.Start({.device = "host:0=4MiB,host:1=4MiB"}).ok());
  const auto first = Attach(HelloOf(0, 2, shm::DeviceIndex{1}));
  ASSERT_TRUE(CreateArena(*first, 3 * kMiB).ok());
  const auto refused = Attach(HelloOf(1, 2, shm::DeviceIndex{1}));
  const grpc::Status status = CreateArena(*refused, 2 * kMiB);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("device 1: asked for 2.0 MiB"), HasSubstr("free 1.0 MiB"),
                    HasSubstr("largest hole 1.0 MiB"), HasSubstr("job demo rank 0 (3.0 MiB)"),
                    HasSubstr("use device 0 (4.0 MiB free)")));
  const auto other = Attach(HelloOf(1, 2, shm::DeviceIndex{0}));
  EXPECT_TRUE(CreateArena(*other, 2 * kMiB).ok());
}

TEST_F(Devices, Pools_LieOnTheNodesOfTheirRanksInBlocks) {
  const FakeNuma numa({{0, 64 * kGiB, 64 * kGiB}, {1, 64 * kGiB, 64 * kGiB}});
  ASSERT_TRUE(env_.Start({.device = "host:0=8MiB", .numa = &numa}).ok());
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<int> nodes;
  for (int rank = 0; rank < 4; ++rank) {
    clients.push_back(Attach(HelloOf(rank, 4)));
    ASSERT_TRUE(AllocateHome(*clients.back(), kMiB).ok());
    nodes.push_back(numa.bindings().back().node);
    EXPECT_FALSE(numa.bindings().back().strict);
  }
  EXPECT_THAT(nodes, ElementsAre(0, 0, 1, 1));
  v1::ListPoolsResponse pools;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::AdminService::NewStub(clients[0]->channel())
                  ->ListPools(&context, v1::ListPoolsRequest(), &pools)
                  .ok());
  ASSERT_EQ(pools.pools_size(), 4);
  EXPECT_EQ(pools.pools(3).numa_node(), 1);
  env_.Stop();
}

TEST_F(Devices, DeviceWithANode_LiesOnItAndBringsItsPools) {
  const FakeNuma numa({{0, 64 * kGiB, 64 * kGiB}, {1, 64 * kGiB, 80 * kMiB}});
  ASSERT_TRUE(env_.Start({.device = "host:0=64MiB@1", .numa = &numa}).ok());
  const auto client = Attach(HelloOf(0, 2));
  EXPECT_EQ(client->welcome().device.numa_node, 1);
  ASSERT_TRUE(CreateArena(*client, 4 * kMiB).ok());
  ASSERT_EQ(numa.bindings().size(), 1u);
  EXPECT_EQ(numa.bindings()[0].node, 1);
  EXPECT_TRUE(numa.bindings()[0].strict);
  ASSERT_TRUE(AllocateHome(*client, kMiB).ok());
  EXPECT_EQ(numa.bindings()[1].node, 1);
  // A node with too little memory left refuses the arena, and the message has the numbers of each
  // node.
  const auto late = Attach(HelloOf(1, 2));
  const grpc::Status status = CreateArena(*late, 32 * kMiB);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("on NUMA node 1, which has 80.0 MiB available"),
                    HasSubstr("node 0: 64.0 GiB, node 1: 80.0 MiB")));
  env_.Stop();
}

}  // namespace
}  // namespace geminid::service
