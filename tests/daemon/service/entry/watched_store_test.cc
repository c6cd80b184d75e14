#include "daemon/service/entry/watched_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace geminid::service {
namespace {

// Ends whenever a test says so.
class EndingStore final : public holder::DescriptorStore {
 public:
  absl::Status Put(const std::string&, int) override { return absl::OkStatus(); }
  absl::Status Remove(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<holder::KeptDescriptor>> List() override {
    return std::vector<holder::KeptDescriptor>();
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

  EndingStore* const store_ = new EndingStore;
  Vitals vitals_;
  int refills_ = 0;
  const std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::Create();
  WatchedStore watched_{std::unique_ptr<holder::DescriptorStore>(store_), loop_.get(), &vitals_};
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

TEST_F(WatchedStoreTest, StoreThatCannotBeReplaced_IsNotFilledAndNotTriedAgain) {
  store_->Begin();
  store_->may_renew = false;
  Watch();
  End();
  loop_->RunOnce(0);
  EXPECT_EQ(store_->renewals, 1);
  EXPECT_EQ(refills_, 0);
}

TEST_F(WatchedStoreTest, StoreThatEndsWhileTheDaemonStops_IsNotReplaced) {
  store_->Begin();
  Watch();
  vitals_.stopping.store(true);
  End();
  EXPECT_EQ(store_->renewals, 0);
}

TEST_F(WatchedStoreTest, StoreThatNeverLives_IsReplacedAHundredTimesAtMost) {
  store_->Begin();
  Watch();
  for (int end = 0; end < 110; ++end) End();
  EXPECT_EQ(store_->renewals, 100);
  EXPECT_EQ(refills_, 100);
}

TEST_F(WatchedStoreTest, StoreWithoutASignOfItsEnd_IsNotWatched) {
  Watch();
  loop_->RunOnce(0);
  EXPECT_EQ(store_->renewals, 0);
}

}  // namespace
}  // namespace geminid::service
