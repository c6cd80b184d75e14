#include "training/ranks/rank_session.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <utility>

#include "tests/daemon_env/daemon_env.h"
#include "training/launch/handover_memory.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kArena = uint64_t{12} << 20;

// A signal has asked the run to end, and another job has the device until the rank begins to wait.
class QueuedRank : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start({.device_memory = "16MiB"}).ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.job = "other";
    connect.device_memory_bytes = kArena;
    connect.admission = Admission{};
    auto other = Session::Connect(connect);
    ASSERT_TRUE(other.ok()) << other.status();
    other_ = *std::move(other);
    options_.model = *FindPreset("gpt2-tiny");
    options_.job = "mine";
    options_.device_memory_bytes = kArena;
    options_.timeout = absl::Seconds(60);
    options_.queue_timeout = absl::Seconds(60);
    context_.info.job = "0123";
    context_.socket = env_.socket();
    context_.stop_signal = [] { return SIGTERM; };
    context_.on_wait = [this] { other_.reset(); };
    auto handover = HandoverMemory::Create();
    ASSERT_TRUE(handover.ok()) << handover.status();
    context_.handover = *std::move(handover);
  }

  absl::Status Connect() { return ConnectDaemon(options_, context_, kArena, {}).status(); }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> other_;
  TrainOptions options_;
  RankContext context_;
};

TEST_F(QueuedRank, AskedToEnd_GivesUp) {
  options_.save = "somewhere";
  const absl::Status status = Connect();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

// The ranks before have ended, and only this rank can save their state.
TEST_F(QueuedRank, AskedToEndWithStateOfRanksBefore_WaitsToSaveIt) {
  ASSERT_TRUE(context_.handover->Begin({.ranks_before = 2, .ranks_after = 1, .bytes = 1}, 1).ok());
  context_.handover->Complete();
  options_.save = "somewhere";
  const absl::Status status = Connect();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(QueuedRank, AskedToEndWithStateOfRanksBeforeThatNobodySaves_GivesUp) {
  ASSERT_TRUE(context_.handover->Begin({.ranks_before = 2, .ranks_after = 1, .bytes = 1}, 1).ok());
  context_.handover->Complete();
  const absl::Status status = Connect();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

}  // namespace
}  // namespace geminid::trainer
