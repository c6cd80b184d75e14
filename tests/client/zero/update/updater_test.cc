#include "client/zero/update/updater.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/src/session_internal.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kElements = 16384;

class UpdaterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 1 << 20;
    session_ = *Session::Connect(connect);
    layout_ =
        *MakeLayout(std::vector<TensorShape>(2, {kElements, true}), {.chunk_elements = kElements});
    store_ = *StateStore::Create(session_.get(), layout_, {.landing_places = 2});
    for (uint32_t granule = 0; granule < layout_.granules; ++granule) {
      store_->SetGradient(granule, store_->Staging(granule));
    }
    const std::vector<Parameter> parameters = {{.name = "a", .shape = {kElements}},
                                               {.name = "b", .shape = {kElements}}};
    optimizer_.emplace(layout_, parameters, 0, Options{});
    ASSERT_TRUE(
        optimizer_->Prepare({.learning_rate = 0.1}, std::vector<TensorRates>(2), *store_, nullptr)
            .ok());
    std::unique_ptr<kernels::ThreadPool> pool;
    ASSERT_EQ(kernels::ThreadPool::Create({.threads = 1}, &pool), kernels::Status::kOk);
    updater_ = *Updater::Create(
        layout_, *optimizer_, store_.get(), std::move(pool), [](const absl::Status&) {},
        [this](uint32_t granule, uint64_t) { order_.push_back(granule); });
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
  Layout layout_;
  std::unique_ptr<StateStore> store_;
  std::optional<GranuleOptimizer> optimizer_;
  std::vector<uint32_t> order_;  // of updates
  std::unique_ptr<Updater> updater_;
};

TEST_F(UpdaterTest, GranulesOfTheBackwardPass_AreUpdatedInTheOrderInWhichTheyCome) {
  ASSERT_EQ(layout_.granules, 2u);
  updater_->BeginStep(5);
  updater_->Expect(0);
  updater_->Expect(1);
  EXPECT_FALSE(updater_->IsCurrent(0));
  absl::Notification first, second;
  updater_->Add(1, 1, [&] { first.Notify(); });
  first.WaitForNotification();
  EXPECT_TRUE(updater_->IsCurrent(1));
  EXPECT_FALSE(updater_->IsCurrent(0));
  updater_->Add(0, 0, [&] { second.Notify(); });
  ASSERT_TRUE(updater_->WaitCurrent(0, absl::InfiniteDuration()).ok());
  second.WaitForNotification();
  EXPECT_EQ(order_, (std::vector<uint32_t>{1, 0}));
  const shm::CommitSegment& commit = *CommitSegmentOf(*session_);
  EXPECT_EQ(shm::ChunkVersion::Decode(commit.versions[0].load()).epoch, 5u);
}

TEST_F(UpdaterTest, StepThatIsAbandoned_IsSaidToWhoWaitsForAChunkThatWillNotCome) {
  updater_->BeginStep(1);
  updater_->Expect(0);
  absl::Status status;
  std::thread waits([&] { status = updater_->WaitCurrent(0, absl::InfiniteDuration()); });
  updater_->Abandon();
  waits.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST_F(UpdaterTest, NothingIsMissing_AbandoningAndEndingAreNoErrors) {
  updater_->Start(1, {0, 1});
  ASSERT_TRUE(updater_->WaitIdle(absl::Seconds(30)).ok());
  updater_->Abandon();
  EXPECT_TRUE(updater_->WaitCurrent(1, absl::InfiniteDuration()).ok());
  updater_->Stop();
  updater_->Add(0, 0, [] { FAIL() << "it has ended"; });
  EXPECT_EQ(order_, (std::vector<uint32_t>{0, 1}));
}

TEST_F(UpdaterTest, GradientThatDoesNotCome_IsADeadline) {
  updater_->BeginStep(5);
  updater_->Expect(0);
  const absl::Status status = updater_->WaitCurrent(0, absl::Milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(updater_->WaitCurrent(1, absl::Milliseconds(20)).ok());
}

}  // namespace
}  // namespace geminid::zero
