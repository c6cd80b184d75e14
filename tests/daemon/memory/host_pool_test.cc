#include "daemon/memory/host_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/machine_memory.h"
#include "base/mapping.h"
#include "base/pages.h"
#include "tests/daemon_env/fake_numa.h"

namespace geminid::memory {
namespace {

using ::geminid::testing::FakeNuma;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

PoolOptions Options(uint64_t bytes) {
  PoolOptions options;
  options.name = "test-pool";
  options.bytes = bytes;
  return options;
}

TEST(HostPool, Create_IsExactSealedBackedAndZero) {
  const uint64_t bytes =
      33 * (uint64_t{1} << 20) + 3 * base::kPageBytes;  // not a whole number of parts
  absl::StatusOr<HostPool> pool = HostPool::Create(Options(bytes), os::ReadMachine());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->bytes(), bytes);
  struct stat facts;
  ASSERT_EQ(::fstat(pool->fd().get(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), bytes);
  // Backed up to the last page, and by no further page.
  EXPECT_EQ(static_cast<uint64_t>(facts.st_blocks) * 512, bytes);
  EXPECT_EQ(::fcntl(pool->fd().get(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_GROW | F_SEAL_SEAL);
  absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(pool->fd(), bytes);
  ASSERT_TRUE(mapping.ok());
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes; ++i) sum += std::to_integer<uint64_t>(mapping->data()[i]);
  EXPECT_EQ(sum, 0u);
}

TEST(HostPool, Revoked_HoldsNothingWhoeverHasADescriptor) {
  absl::StatusOr<HostPool> pool = HostPool::Create(Options(kMiB), os::ReadMachine());
  ASSERT_TRUE(pool.ok()) << pool.status();
  const base::UniqueFd clients(::dup(pool->fd().get()));
  ASSERT_EQ(pool->Revoke(), absl::OkStatus());
  EXPECT_NE(::posix_fallocate(clients.get(), 0, static_cast<off_t>(kMiB)), 0);
  struct stat facts;
  ASSERT_EQ(::fstat(clients.get(), &facts), 0);
  EXPECT_EQ(facts.st_blocks, 0);
}

TEST(HostPool, Create_OfPartOfAPage_IsRefused) {
  EXPECT_EQ(HostPool::Create(Options(100), os::ReadMachine()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostPool::Create(Options(0), os::ReadMachine()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HostPool, Create_OfMoreThanTheMachineHas_IsRefusedWithNumbers) {
  const uint64_t bytes = uint64_t{1} << 46;
  const absl::Status status = HostPool::Create(Options(bytes), os::ReadMachine()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 64.0 TiB"));
}

TEST(HostPool, Create_ThatWouldLeaveTooLittle_IsRefusedWithNumbersThatAddUp) {
  PoolOptions options = Options(uint64_t{40} << 20);
  options.available_bytes = [](bool) { return uint64_t{100} << 20; };
  const absl::Status status = HostPool::Create(options, os::ReadMachine()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("needs 40.0 MiB"), HasSubstr("leaves 64.0 MiB to other programs"),
                    HasSubstr("only 100 MiB available"), HasSubstr(base::DescribeTotalMemory())));
}

TEST(HostPool, Create_Cancelled_EndsEarly) {
  const std::atomic<bool> cancelled{true};
  PoolOptions options = Options(uint64_t{64} << 20);
  options.cancelled = &cancelled;
  EXPECT_EQ(HostPool::Create(options, os::ReadMachine()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(HostPool, FitsHugePages_WholePagesAndEnoughOfThem) {
  os::HugePages pages;
  pages.page_bytes = uint64_t{2} << 20;
  pages.free_pages = 3;
  EXPECT_TRUE(FitsHugePages(uint64_t{6} << 20, pages));
  EXPECT_FALSE(FitsHugePages(uint64_t{8} << 20, pages));
  EXPECT_FALSE(FitsHugePages((uint64_t{2} << 20) + base::kPageBytes, pages));
  EXPECT_FALSE(FitsHugePages(uint64_t{2} << 20, os::HugePages()));
}

// A pool in reserved pages takes no ordinary pages, and the reverse.
TEST(BytesForPools, OfReservedPages_AreThoseWhereThereAreMoreOfThem) {
  const auto available = [](bool reserved) {
    return uint64_t{reserved ? 700u : 1064u} << 20;  // within cgroups, on the machine
  };
  const auto bytes = [&](uint64_t pages, bool counted, uint64_t promised_mib = 0) {
    os::HugePages reserved;
    reserved.page_bytes = uint64_t{2} << 20;
    reserved.free_pages = pages;
    reserved.counted_by_cgroups = counted;
    return BytesForPools(reserved, promised_mib << 20, available) >> 20;
  };
  EXPECT_EQ(BytesForPools({}, 0, available) >> 20, 1000u) << "some is left to the machine";
  EXPECT_EQ(bytes(100, false), 1000u);
  EXPECT_EQ(bytes(4000, false), 8000u);
  EXPECT_EQ(bytes(4000, true), 1000u) << "cgroups leave less";
  EXPECT_EQ(bytes(100, false, 300), 700u) << "others are being given ordinary pages";
  EXPECT_EQ(bytes(4000, false, 300), 8000u);
  EXPECT_EQ(bytes(4000, true, 600), 400u);
}

TEST(HostPool, Create_HugePagesPromisedButGone_FallsBack) {
  os::Machine machine = os::ReadMachine();
  // More pages than are free now, as if another program had taken some since they were counted.
  machine.huge_pages.page_bytes = uint64_t{2} << 20;
  machine.huge_pages.free_pages = uint64_t{1} << 20;
  PoolOptions options = Options(uint64_t{4} << 20);
  options.huge_pages = true;
  absl::StatusOr<HostPool> pool = HostPool::Create(options, machine);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->bytes(), options.bytes);
}

// The kernel would end the process that takes pages beyond the limit, or another one.
TEST(HostPool, Create_HugePagesThatCountAgainstCgroups_AreBoundByTheirLimits) {
  os::Machine machine = os::ReadMachine();
  machine.huge_pages.page_bytes = uint64_t{2} << 20;
  machine.huge_pages.free_pages = uint64_t{1} << 20;
  PoolOptions options = Options(uint64_t{4} << 20);
  options.huge_pages = true;
  options.available_bytes = [](bool reserved) { return reserved ? uint64_t{1} << 20 : kGiB; };
  EXPECT_TRUE(HostPool::Create(options, machine).ok()) << "they count against nothing";
  machine.huge_pages.counted_by_cgroups = true;
  const absl::Status status = HostPool::Create(options, machine).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("cgroups' memory limits, against which huge pages count, leave only 1.0 MiB"));
  // A pool that falls back to ordinary pages is not refused because of its own reservation.
  options.available_bytes = [](bool) { return uint64_t{70} << 20; };
  EXPECT_TRUE(HostPool::Create(options, machine).ok());
}

std::vector<int> NodesOfRanks(int ranks, const std::vector<os::NodeMemory>& nodes) {
  std::vector<int> chosen;
  for (int rank = 0; rank < ranks; ++rank) chosen.push_back(NodeOfLocalRank(rank, ranks, nodes));
  return chosen;
}

TEST(NodeOfLocalRank, Ranks_GoToTheNodesInBlocks) {
  const std::vector<os::NodeMemory> two = {{0, kGiB, kGiB}, {1, kGiB, kGiB}};
  EXPECT_THAT(NodesOfRanks(1, two), ElementsAre(0));
  EXPECT_THAT(NodesOfRanks(2, two), ElementsAre(0, 1));
  EXPECT_THAT(NodesOfRanks(3, two), ElementsAre(0, 0, 1));
  EXPECT_THAT(NodesOfRanks(8, two), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  // Numbers of nodes may have gaps.
  EXPECT_THAT(NodesOfRanks(2, {{0, kGiB, kGiB}, {8, kGiB, kGiB}}), ElementsAre(0, 8));
}

TEST(NodeOfLocalRank, OneNodeOrAnUnknownNumberOfRanks_IsNotBound) {
  const std::vector<os::NodeMemory> two = {{0, kGiB, kGiB}, {1, kGiB, kGiB}};
  EXPECT_EQ(NodeOfLocalRank(0, 1, {{0, kGiB, kGiB}}), shm::kNoNumaNode);
  EXPECT_EQ(NodeOfLocalRank(1, 0, two), shm::kNoNumaNode);
  EXPECT_EQ(NodeOfLocalRank(4, 4, two), shm::kNoNumaNode);
}

TEST(HostPool, NodeWithRoom_GetsThePool) {
  const FakeNuma numa({{0, kGiB, kGiB}, {1, kGiB, kGiB}});
  PoolOptions options = Options(kMiB);
  options.numa = &numa;
  options.numa_node = 1;
  const absl::StatusOr<HostPool> pool = HostPool::Create(options, os::ReadMachine());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->numa_node(), 1);
  ASSERT_EQ(numa.bindings().size(), 1u);
  EXPECT_EQ(numa.bindings()[0].node, 1);
  EXPECT_EQ(numa.bindings()[0].bytes, kMiB);
  EXPECT_FALSE(numa.bindings()[0].strict);
}

TEST(HostPool, NodeWithoutRoom_LeavesThePoolOnAllNodes) {
  const FakeNuma numa({{0, kGiB, kGiB}, {1, kGiB, kMiB}});
  PoolOptions options = Options(2 * kMiB);
  options.numa = &numa;
  options.numa_node = 1;
  const absl::StatusOr<HostPool> pool = HostPool::Create(options, os::ReadMachine());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->numa_node(), shm::kNoNumaNode);
  EXPECT_THAT(numa.bindings(), IsEmpty());
}

TEST(HostPool, StrictNodeWithoutRoom_IsRefusedWithTheNumbersOfEachNode) {
  const FakeNuma numa({{0, kGiB, kGiB}, {1, kGiB, kMiB}});
  PoolOptions options = Options(2 * kMiB);
  options.numa = &numa;
  options.numa_node = 1;
  options.numa_strict = true;
  const absl::Status status = HostPool::Create(options, os::ReadMachine()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("needs 2.0 MiB (2097152 bytes) on NUMA node 1, which has 1.0 MiB"),
                    HasSubstr("of which 64.0 MiB stay free"),
                    HasSubstr("(node 0: 1.0 GiB, node 1: 1.0 MiB)")));
}

}  // namespace
}  // namespace geminid::memory
