// Two jobs at one device's link, which is slow: the bytes of each go by its weight.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid {
namespace {

constexpr uint64_t kCopyBytes = 64 << 10;
constexpr int kCopies = 400;
// Of the heavy job: both have begun before the first, and neither has ended before the second.
constexpr int kBegin = 90;
constexpr int kEnd = 390;

// Sends copies to the device one after the other, as many as it may.
class Job {
 public:
  Job(const std::string& socket, const std::string& name, unsigned weight) {
    ConnectOptions connect;
    connect.socket = socket;
    connect.job = name;
    connect.device_memory_bytes = 1 << 20;
    connect.copy_bytes_per_second = 64 << 20;  // a copy takes a millisecond
    connect.admission = {.weight = weight};
    auto session = Session::Connect(connect);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    const auto chunks =
        session_->Allocate({{"home", ChunkKind::kWeight, kCopyBytes},
                            {"device", ChunkKind::kGatheredWeight, kCopyBytes, false}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    home_ = (*chunks)[0].id;
    device_ = (*chunks)[1].id;
  }

  void SendAll(const std::function<void(int done)>& on_done) {
    for (int i = 0; i < kCopies; ++i) {
      pending_.push_back(session_->Transfer({.source = home_,
                                             .destination = device_,
                                             .bytes = kCopyBytes,
                                             .allocate_destination = true}));
      pending_.back().Then([this, on_done](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        on_done(++done_);
      });
    }
  }
  void Wait() {
    for (const Pending& pending : pending_) {
      EXPECT_TRUE(pending.Wait(absl::Seconds(60)).ok());
    }
  }
  int done() const { return done_.load(); }

 private:
  std::atomic<int> done_ = 0;
  std::vector<Pending> pending_;
  std::unique_ptr<Session> session_;
  ChunkId home_ = kNoChunk;
  ChunkId device_ = kNoChunk;
};

TEST(LinkSharesTest, JobsOfWeightsOneAndThree_MoveBytesOneToThree) {
  geminid::testing::DaemonEnv env;
  geminid::testing::DaemonEnvOptions options;
  options.link_bytes_in_flight = "64KiB";  // one copy at a time, of all sessions
  ASSERT_TRUE(env.Start(options).ok());
  Job light(env.socket(), "light", 1);
  Job heavy(env.socket(), "heavy", 3);
  std::atomic<int> light_at_begin = 0;
  std::atomic<int> light_at_end = 0;
  light.SendAll([](int) {});
  heavy.SendAll([&](int done) {
    if (done == kBegin) light_at_begin = light.done();
    if (done == kEnd) light_at_end = light.done();
  });
  heavy.Wait();
  light.Wait();
  const double ratio = static_cast<double>(kEnd - kBegin) /
                       static_cast<double>(light_at_end.load() - light_at_begin.load());
  EXPECT_NEAR(ratio, 3, 0.15);
}

}  // namespace
}  // namespace geminid
