#include "daemon/service/heritage/node_record.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/memfd.h"

namespace geminid::service {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

core::EngineOptions Node(uint64_t host_bytes, std::vector<uint64_t> device_bytes) {
  core::EngineOptions engine;
  engine.host_capacity_bytes = host_bytes;
  for (const uint64_t bytes : device_bytes) {
    const auto index = static_cast<uint32_t>(engine.devices.size());
    engine.devices.push_back(core::HostDevice(shm::DeviceIndex{index}, bytes));
  }
  return engine;
}

// The record as the next daemon finds it.
NodeRecord Next(const NodeRecord& record) {
  absl::StatusOr<NodeRecord> next = NodeRecord::Open(record.fd());
  EXPECT_TRUE(next.ok()) << next.status();
  return *std::move(next);
}

TEST(NodeRecord, CapacitiesThatNobodyChose_AreThoseOfTheEarlierDaemon) {
  const NodeRecord record = *NodeRecord::Create(Node(8 * kGiB, {2 * kGiB, 3 * kGiB}));
  core::EngineOptions engine = Node(1, {1, 1});
  Next(record).ReplaceHostCapacity(&engine);
  EXPECT_EQ(engine.host_capacity_bytes, 8 * kGiB);
  EXPECT_EQ(engine.devices[0].capacity_bytes, 1u);
  Next(record).ReplaceDeviceCapacities(&engine);
  EXPECT_EQ(engine.devices[0].capacity_bytes, 2 * kGiB);
  EXPECT_EQ(engine.devices[1].capacity_bytes, 3 * kGiB);
}

TEST(NodeRecord, OtherNumberOfDevices_LeavesTheirCapacities) {
  const NodeRecord record = *NodeRecord::Create(Node(8 * kGiB, {2 * kGiB}));
  core::EngineOptions engine = Node(1, {1, 1});
  Next(record).ReplaceDeviceCapacities(&engine);
  EXPECT_EQ(engine.devices[0].capacity_bytes, 1u);
}

TEST(NodeRecord, Drain_IsSeenByTheNextDaemonUntilItIsUndone) {
  NodeRecord record = *NodeRecord::Create(Node(kGiB, {kGiB}));
  EXPECT_FALSE(Next(record).IsDrained());
  record.NoteDrain(true);
  EXPECT_TRUE(Next(record).IsDrained());
  record.NoteDrain(false);
  EXPECT_FALSE(Next(record).IsDrained());
}

TEST(NodeRecord, DaemonThatDidNotCrash_LeavesNoNote) {
  NodeRecord record = *NodeRecord::Create(Node(kGiB, {kGiB}));
  EXPECT_FALSE(record.TakeCrashNote());
  EXPECT_FALSE(Next(record).TakeCrashNote());
}

TEST(NodeRecord, FileOfAnotherRelease_IsAsIfItWereNotThere) {
  for (const bool has_file : {false, true}) {
    base::UniqueFd fd;
    if (has_file) fd = *base::CreateSealedMemfd("other", 4096);
    absl::StatusOr<NodeRecord> record = NodeRecord::Open(fd);
    ASSERT_TRUE(record.ok()) << record.status();
    core::EngineOptions engine = Node(7, {5});
    record->ReplaceHostCapacity(&engine);
    record->ReplaceDeviceCapacities(&engine);
    record->NoteDrain(true);
    EXPECT_FALSE(record->IsDrained());
    EXPECT_FALSE(record->TakeCrashNote());
    EXPECT_EQ(engine.host_capacity_bytes, 7u);
    EXPECT_EQ(engine.devices[0].capacity_bytes, 5u);
  }
}

}  // namespace
}  // namespace geminid::service
