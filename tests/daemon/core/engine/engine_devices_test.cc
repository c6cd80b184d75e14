// Several devices in one node: each has its own memory, its own link and its own refusals.
#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr DeviceIndex kFirst{0};
constexpr DeviceIndex kSecond{1};

TEST(ChooseDevice, AnyDevice_SpreadsTheLocalRanksInTurn) {
  const std::vector<DeviceDescription> two = {HostDevice(kFirst, 1), HostDevice(kSecond, 1)};
  std::vector<DeviceIndex> given;
  for (int local_rank = 0; local_rank < 4; ++local_rank) {
    given.push_back(*ChooseDevice(two, shm::kAnyDevice, local_rank));
  }
  EXPECT_THAT(given, ElementsAre(kFirst, kSecond, kFirst, kSecond));
  EXPECT_EQ(*ChooseDevice(two, kSecond, 0), kSecond);
}

TEST(ChooseDevice, DeviceThatIsNotThere_IsRefusedWithThoseThatAre) {
  const absl::Status status =
      ChooseDevice({HostDevice(kFirst, uint64_t{1} << 30), HostDevice(kSecond, 4096)},
                   DeviceIndex{2}, 0)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("there is no device 2; this daemon has device 0 (host, 1.0 GiB), device 1 "
                        "(host, 4.0 KiB)"));
  EXPECT_FALSE(ChooseDevice({}, shm::kAnyDevice, 0).ok());
}

TEST(ChooseDevice, DeviceWithoutMemory_IsNobodysTurnButCanBeAskedFor) {
  const std::vector<DeviceDescription> devices = {HostDevice(kFirst, 0), HostDevice(kSecond, 1)};
  for (int local_rank = 0; local_rank < 3; ++local_rank) {
    EXPECT_EQ(*ChooseDevice(devices, shm::kAnyDevice, local_rank), kSecond);
  }
  EXPECT_EQ(*ChooseDevice(devices, kFirst, 0), kFirst);
  EXPECT_FALSE(ChooseDevice({HostDevice(kFirst, 0)}, shm::kAnyDevice, 0).ok());
}

class EngineDevices : public EngineTest {
 protected:
  static constexpr uint64_t kDeviceBytes = 16 * kSlot;

  void SetUp() override {
    options_.devices = {HostDevice(kFirst, kDeviceBytes), HostDevice(kSecond, 2 * kDeviceBytes)};
    Start();
  }
  static SessionSpec On(DeviceIndex device, int rank = 0) {
    SessionSpec spec = Spec(rank);
    spec.device = device;
    return spec;
  }
  AccountTotals Totals(DeviceIndex device) {
    return engine_->ledger().Totals(DeviceAccount(device));
  }
};

TEST_F(EngineDevices, SessionsThatAreAlone_GetTheEmptiestDevice) {
  SessionSpec spec = Spec();
  spec.world_size = 1;
  const SessionId first = Open(spec);
  EXPECT_EQ(engine_->DeviceOf(first)->index, kSecond);  // the second device is twice as large
  ASSERT_TRUE(engine_->CreateArena(first, kDeviceBytes + kSlot).ok());
  const SessionId second = Open(spec);
  EXPECT_EQ(engine_->DeviceOf(second)->index, kFirst);
  ASSERT_TRUE(engine_->CreateArena(second, 2 * kSlot).ok());
  EXPECT_EQ(engine_->DeviceOf(Open(spec))->index, kSecond);
  spec.device = kFirst;
  EXPECT_EQ(engine_->DeviceOf(Open(spec))->index, kFirst);
}

TEST_F(EngineDevices, UnfitDevice_IsNobodysWhoIsAloneWhileThereIsAnother) {
  SessionSpec spec = Spec();
  spec.world_size = 1;
  engine_->SetUnfit({kSecond});
  EXPECT_EQ(engine_->DeviceOf(Open(spec))->index, kFirst);
  EXPECT_EQ(engine_->DeviceOf(Open(On(kSecond)))->index, kSecond) << "who names it gets it";
  engine_->SetUnfit({kFirst, kSecond});
  EXPECT_TRUE(engine_->OpenSession(spec, now_).ok()) << "there is no other";
  engine_->SetUnfit({});
  EXPECT_EQ(engine_->DeviceOf(Open(spec))->index, kSecond);
}

TEST_F(EngineDevices, EqualDevices_AreTakenInTurnBySessionsThatAreAlone) {
  options_.devices = {HostDevice(kFirst, kDeviceBytes), HostDevice(kSecond, kDeviceBytes)};
  Start();
  SessionSpec spec = Spec();
  spec.world_size = 1;
  std::vector<DeviceIndex> given;
  for (int i = 0; i < 4; ++i) given.push_back(engine_->DeviceOf(Open(spec))->index);
  EXPECT_THAT(given, ElementsAre(kFirst, kSecond, kFirst, kSecond));
}

TEST_F(EngineDevices, LocalRanks_AreSpreadUnlessTheyAskForOne) {
  SessionSpec spec = Spec(5);
  spec.local_rank = 1;
  EXPECT_EQ(engine_->DeviceOf(Open(spec))->index, kSecond);
  spec.device = kFirst;
  EXPECT_EQ(engine_->DeviceOf(Open(spec))->index, kFirst);
  spec.device = DeviceIndex{7};
  EXPECT_EQ(engine_->OpenSession(spec, now_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Sessions().size(), 2u);
}

TEST_F(EngineDevices, Chunks_AreChargedToTheirSessionsDevice) {
  const SessionId first = OpenWithArena(8, On(kFirst));
  const SessionId second = OpenWithArena(12, On(kSecond, 1));
  MakeResident(first, Add(first, ChunkKind::kWeight, 3 * kSlot));
  MakeResident(second, Add(second, ChunkKind::kWeight, 5 * kSlot));
  EXPECT_EQ(Totals(kFirst).in_use_bytes, 3 * kSlot);
  EXPECT_EQ(Totals(kFirst).reserved_bytes, 5 * kSlot);
  EXPECT_EQ(Totals(kSecond).in_use_bytes, 5 * kSlot);
  EXPECT_EQ(Totals(kSecond).free_bytes, 20 * kSlot);
  EXPECT_EQ(engine_->Sessions()[1].device, kSecond);
  EXPECT_EQ(engine_->Sessions()[1].device_in_use_bytes, 5 * kSlot);
  const auto releases = engine_->CloseSession(first, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  GiveBack(*releases);
  EXPECT_EQ(Totals(kFirst).free_bytes, kDeviceBytes);
  EXPECT_EQ(Totals(kSecond).in_use_bytes, 5 * kSlot);
}

TEST_F(EngineDevices, FullDevice_IsNamedWithItsHolderAndWhereThereIsRoom) {
  OpenWithArena(30, On(kSecond, 3));
  OpenWithArena(16, On(kFirst, 1));
  const SessionId late = Open(On(kFirst, 2));
  const absl::Status status = engine_->CreateArena(late, 2 * kSlot).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("device 0: asked for 8.0 KiB (8192 bytes), free 0 B, largest hole "
                               "0 B"),
                    HasSubstr("most is held by job llm rank 1 (64.0 KiB)"),
                    HasSubstr("use device 1 (8.0 KiB free)")));
  // The other device still serves.
  EXPECT_TRUE(engine_->CreateArena(Open(On(kSecond, 4)), 2 * kSlot).ok());
}

TEST_F(EngineDevices, TenantLimit_HoldsOnEachDevice) {
  options_.tenants = {{"uid:1000", kUnlimited, 4 * kSlot, {{kSecond, 6 * kSlot}}}};
  Start();
  EXPECT_TRUE(engine_->CreateArena(Open(On(kFirst)), 4 * kSlot).ok());
  EXPECT_THAT(std::string(engine_->CreateArena(Open(On(kFirst)), kSlot).status().message()),
              AllOf(StartsWith("device 0: asked"), HasSubstr("tenant uid:1000 may have 16.0 KiB")));
  EXPECT_TRUE(engine_->CreateArena(Open(On(kSecond)), 6 * kSlot).ok());
  EXPECT_FALSE(engine_->CreateArena(Open(On(kSecond)), kSlot).ok());
}

TEST_F(EngineDevices, Arena_IsAMultipleOfTheDevicesGranularity) {
  options_.devices[1].granularity_bytes = 4 * kSlot;
  Start();
  EXPECT_EQ(*engine_->CreateArena(Open(On(kFirst)), 1), kSlot);
  EXPECT_EQ(*engine_->CreateArena(Open(On(kSecond)), kSlot + 1), 4 * kSlot);
}

TEST_F(EngineDevices, LinkLimit_IsOfEachDevice) {
  options_.transfers.link_bytes_in_flight = 100;
  options_.transfers.bytes_in_flight = 100;
  Start();
  const auto load = [this](SessionId session) {
    const ChunkId weight = Add(session, ChunkKind::kWeight, 100);
    const ChunkId gathered = Add(session, ChunkKind::kGatheredWeight, 100);
    return Ask(session, MakeTransfer(weight, gathered, 100, shm::kAllocateDestination)).op;
  };
  EXPECT_EQ(load(OpenWithArena(4, On(kFirst))), shm::ResponseOp::kTicket);
  EXPECT_EQ(load(OpenWithArena(4, On(kFirst))), shm::ResponseOp::kNone);  // waits for the link
  EXPECT_EQ(load(OpenWithArena(4, On(kSecond))), shm::ResponseOp::kTicket);
}

TEST_F(EngineDevices, KeptSession_IsResumedOnItsDeviceAlone) {
  SessionSpec spec = On(kSecond);
  spec.death_policy = shm::DeathPolicy::kKeep;
  const SessionId session = OpenWithArena(4, spec);
  MakeResident(session, Add(session, ChunkKind::kWeight, kSlot));
  ASSERT_TRUE(engine_->CloseSession(session, CloseReason::kDied, now_).ok());
  EXPECT_EQ(Totals(kSecond).in_use_bytes, kSlot);
  spec.device = kFirst;
  const absl::Status other = engine_->ReopenSession(session, spec, now_);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("kept on device 1, not on device 0"));
  spec.device = shm::kAnyDevice;
  EXPECT_TRUE(engine_->ReopenSession(session, spec, now_).ok());
  EXPECT_EQ(engine_->DeviceOf(session)->index, kSecond);
}

}  // namespace
}  // namespace geminid::core
