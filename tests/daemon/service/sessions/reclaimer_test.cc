#include "daemon/service/sessions/reclaimer.h"

#include <fcntl.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/daemon/service/sessions/bare_table.h"

namespace geminid::service {
namespace {

// An arena of a GPU. Its memory returns when the test says so.
class SlowArena final : public memory::DeviceArena {
 public:
  using Done = std::function<void(absl::Status)>;
  explicit SlowArena(Done* done) : done_(done) {}
  std::vector<Slab> slabs() const override { return {}; }
  double populate_seconds() const override { return 0; }
  void Revoke(base::UniqueFd, Done done) override { *done_ = std::move(done); }

 private:
  Done* const done_;
};

class ReclaimerTest : public BareTable {
 protected:
  core::ChargeId ChargeArena(const SessionPtr& session) {
    return table_.Lock().engine().BeginArena(session->id(), kMiB)->charge;
  }
  Garbage WithArena(SlowArena::Done* done, core::ChargeId charge) {
    Garbage garbage;
    garbage.arenas.push_back({.memory = std::make_unique<SlowArena>(done), .holder = {}});
    garbage.charges.push_back(charge);
    return garbage;
  }
  uint64_t FreeOfDevice() { return FreeBytes(core::DeviceAccount(shm::DeviceIndex{0})); }

  SessionStatistics statistics_;
  Reclaimer reclaimer_{&table_, &store_, &plans_, &statistics_};
};

TEST_F(ReclaimerTest, Pool_IsRevokedThenForgottenAndNoLongerCharged) {
  const SessionPtr session = Open();
  const core::Promise promise = *table_.Lock().engine().BeginAllocation(
      session->id(), {{"c", shm::ChunkKind::kGeneric, 4096, true}});
  const base::UniqueFd client = *base::CreateRevocableMemfd("pool", promise.bytes);
  Garbage garbage;
  garbage.pools.push_back(
      *memory::HostPool::Adopt(base::UniqueFd(::fcntl(client.get(), F_DUPFD_CLOEXEC, 0))));
  garbage.charges.push_back(promise.charge);
  garbage.descriptor_names.push_back("s1-pool1");
  names_.names.insert("s1-pool1");
  EXPECT_EQ(FreeBytes(core::kHostAccount), kMiB - promise.bytes);
  reclaimer_.Destroy(std::move(garbage));
  EXPECT_FALSE(base::CheckRevocable(client, promise.bytes).ok()) << "its client has it still";
  EXPECT_FALSE(names_.names.contains("s1-pool1"));
  EXPECT_EQ(FreeBytes(core::kHostAccount), kMiB);
}

TEST_F(ReclaimerTest, ArenaThatComesBackLater_IsChargedUntilThen) {
  SlowArena::Done done;
  reclaimer_.Destroy(WithArena(&done, ChargeArena(Open())));
  EXPECT_EQ(FreeOfDevice(), 0u);
  done(absl::OkStatus());
  EXPECT_EQ(FreeOfDevice(), kMiB);
}

TEST_F(ReclaimerTest, ArenaThatCannotBeTakenBack_StaysCharged) {
  SlowArena::Done done;
  reclaimer_.Destroy(WithArena(&done, ChargeArena(Open())));
  done(absl::UnavailableError("its agent has ended"));
  EXPECT_EQ(FreeOfDevice(), 0u);
}

TEST_F(ReclaimerTest, SessionThatEnds_LeavesTableStoreAndAccountsSliceBySlice) {
  const SessionPtr session = Open();
  const std::vector<core::ChunkSpec> specs(20, {"c", shm::ChunkKind::kGeneric, 64, true});
  ASSERT_TRUE(table_.Lock().engine().Allocate(session->id(), specs).ok());
  store_.PutSession(*session);
  EXPECT_FALSE(names_.names.empty());
  Garbage garbage;
  {
    const SessionTable::Locked locked = table_.Lock();
    const absl::StatusOr<core::Releases> releases =
        locked.engine().BeginClose(session->id(), core::CloseReason::kDetached, Now());
    ASSERT_TRUE(releases.ok()) << releases.status();
    reclaimer_.Collect(locked, *releases, /*died=*/false, &garbage);
    EXPECT_NE(locked.Find(session->id()), nullptr) << "its chunks are freed in slices";
  }
  reclaimer_.Destroy(std::move(garbage));
  EXPECT_EQ(table_.Lock().Find(session->id()), nullptr);
  EXPECT_TRUE(names_.names.empty());
  EXPECT_EQ(FreeBytes(core::kHostAccount), kMiB);
}

TEST_F(ReclaimerTest, GarbageLeftToTheThread_IsDestroyedAtTheLatestWithIt) {
  SlowArena::Done done;
  {
    Reclaimer reclaimer(&table_, &store_, &plans_, &statistics_);
    ASSERT_TRUE(reclaimer.Start().ok());
    reclaimer.DestroyLater(WithArena(&done, ChargeArena(Open())));
  }
  ASSERT_TRUE(done) << "it was not destroyed";
  done(absl::OkStatus());
  EXPECT_EQ(FreeOfDevice(), kMiB);
}

}  // namespace
}  // namespace geminid::service
