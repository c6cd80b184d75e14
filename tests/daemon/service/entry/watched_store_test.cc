#include "daemon/service/entry/watched_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace geminid::service {
namespace {

// A store that ends whenever a test ends it.
class EndingStore final : public holder::DescriptorStore {
 public:
  absl::Status Put(const std::string&, int) override { return absl::OkStatus(); }
  absl::Status Remove(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<holder::StoredDescriptor>> List() override {
    return std::vector<holder::StoredDescriptor>();
  }
  void Finish() override {}
  int watch_fd() const override { return ours_.get(); }
  absl::Status Renew() override {
    ++renewals;
    if (!may_renew) return absl::UnavailableError("there is no program");
    Begin();
    return absl::OkStatus();
  }
  void Begin() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = base::UniqueFd(ends[0]);
    theirs_ = base::UniqueFd(ends[1]);
  }
  void End() { theirs_.Reset(); }

  bool may_renew = true;
  int renewals = 0;

 private:
  base::UniqueFd ours_;
  base::UniqueFd theirs_;
};

class WatchedStoreTest : public ::testing::Test {
 protected:
  void Watch() {
    watched_.Watch([this] { ++refills_; });
  }
  void End() {
    store_->End();
    loop_->RunOnce(0);
  }
  // Moves the clock to the deadline, as the daemon does. False: there is no deadline.
  bool ReachDeadline() {
    const std::optional<int64_t> deadline = watched_.NextDeadline();
    if (!deadline.has_value()) return false;
    now_ = std::max(now_, *deadline);
    watched_.RenewIfDue();
    return true;
  }
  SessionSurvival survival() const { return vitals_.survival.load(); }

  static constexpr int64_t kSecond = 1'000'000'000;

  EndingStore* const store_ = new EndingStore;
  Vitals vitals_;
  int refills_ = 0;
  int64_t now_ = 1000 * kSecond;
  const std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::Create();
  WatchedStore watched_{std::unique_ptr<holder::DescriptorStore>(store_), loop_.get(), &vitals_,
                        [this] { return now_; }};
};

TEST_F(WatchedStoreTest, StoreThatLives_IsLeftAlone) {
  store_->Begin();
  Watch();
  loop_->RunOnce(0);
  EXPECT_EQ(store_->renewals, 0);
}

TEST_F(WatchedStoreTest, StoreThatEnds_IsReplacedAndFilledEachTime) {
  store_->Begin();
  Watch();
  for (int end = 1; end <= 3; ++end) {
    End();
    EXPECT_EQ(store_->renewals, end);
    EXPECT_EQ(refills_, end);
  }
}

TEST_F(WatchedStoreTest, StoreThatCannotBeReplaced_IsNotFilledAndTriedAgainAfterAPause) {
  store_->Begin();
  store_->may_renew = false;
  Watch();
  End();
  loop_->RunOnce(0);
  watched_.RenewIfDue();
  EXPECT_EQ(store_->renewals, 1);
  EXPECT_EQ(refills_, 0);
  store_->may_renew = true;
  ASSERT_TRUE(ReachDeadline());
  EXPECT_EQ(store_->renewals, 2);
  EXPECT_EQ(refills_, 1);
  EXPECT_EQ(watched_.NextDeadline(), std::nullopt);
  End();
  EXPECT_EQ(refills_, 2) << "the new store is watched";
}

TEST_F(WatchedStoreTest, PausesBetweenFailures_GrowToAMinute) {
  store_->Begin();
  store_->may_renew = false;
  Watch();
  End();
  std::vector<int64_t> pauses;
  for (int failure = 0; failure < 9; ++failure) {
    pauses.push_back((*watched_.NextDeadline() - now_) / kSecond);
    ReachDeadline();
  }
  EXPECT_EQ(pauses, (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 60, 60, 60}));
}

TEST_F(WatchedStoreTest, Reload_TriesAtOnce) {
  store_->Begin();
  store_->may_renew = false;
  Watch();
  End();
  store_->may_renew = true;
  watched_.RenewNow();
  EXPECT_EQ(refills_, 1);
  watched_.RenewNow();
  EXPECT_EQ(store_->renewals, 2) << "there is a store";
}

TEST_F(WatchedStoreTest, Sessions_SurviveWhileThereIsAStore) {
  store_->Begin();
  store_->may_renew = false;
  Watch();
  EXPECT_EQ(survival(), SessionSurvival::kAssured);
  End();
  EXPECT_EQ(survival(), SessionSurvival::kLost);
  store_->may_renew = true;
  ReachDeadline();
  EXPECT_EQ(survival(), SessionSurvival::kAssured);
}

TEST_F(WatchedStoreTest, StoreThatStoresNothing_SavesNoSession) {
  Vitals vitals;
  const WatchedStore nothing(std::make_unique<holder::NoStore>(), loop_.get(), &vitals);
  EXPECT_EQ(vitals.survival.load(), SessionSurvival::kLost);
}

TEST_F(WatchedStoreTest, StoreThatEndsWhileTheDaemonStops_IsNotReplaced) {
  store_->Begin();
  Watch();
  vitals_.stopping.store(true);
  End();
  EXPECT_EQ(store_->renewals, 0);
}

TEST_F(WatchedStoreTest, StoreThatNeverLives_IsReplacedTenTimesAtOnceAndThenEverMoreRarely) {
  store_->Begin();
  Watch();
  for (int end = 0; end < 12; ++end) {
    End();
    EXPECT_EQ(store_->renewals, std::min(end + 1, 10));
  }
  const int64_t begin = now_;
  for (int end = 0; end < 20; ++end) {
    ReachDeadline();
    End();
  }
  EXPECT_EQ(store_->renewals, 30);
  EXPECT_GT(now_ - begin, 10 * 60 * kSecond);
}

TEST_F(WatchedStoreTest, StoreThatLivesLong_IsReplacedAtOnceHoweverOftenOthersEnded) {
  store_->Begin();
  Watch();
  for (int end = 1; end <= 110; ++end) {
    now_ += 60 * kSecond;
    End();
    EXPECT_EQ(store_->renewals, end);
  }
}

TEST_F(WatchedStoreTest, StoreWithoutASignOfItsEnd_IsNotWatched) {
  Watch();
  loop_->RunOnce(0);
  EXPECT_EQ(store_->renewals, 0);
}

}  // namespace
}  // namespace geminid::service
