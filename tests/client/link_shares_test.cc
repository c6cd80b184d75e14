// Two jobs share one device's slow link: each job's bytes follow its weight.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/src/session_internal.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid {
namespace {

constexpr uint64_t kCopyBytes = 64 << 10;
constexpr int kCopies = 500;  // fewer than a session may have unanswered
// After so many copies of the heavy job, the link is stopped. Both jobs have more to send.
constexpr int kLook = 150;

// Sends as many copies to the device as it may, one after the other.
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
  ~Job() { GoOn(); }

  void SendAll(const std::function<void(int done)>& on_done) {
    for (int i = 0; i < kCopies; ++i) {
      pending_.push_back(session_->Transfer({.source = home_,
                                             .destination = device_,
                                             .bytes = kCopyBytes,
                                             .allocate_destination = true}));
      pending_.back().Then([this, on_done](const absl::Status&) { on_done(++done_); });
    }
  }
  // Stops the next copy of this job, and with it the link.
  void Stop() {
    stopped_.store(true);
    DeviceOf(*session_)->copy_stream(device::Direction::kHostToDevice).Enqueue([this] {
      while (stopped_.load()) std::this_thread::yield();
    });
  }
  void GoOn() { stopped_.store(false); }
  bool stopped() const { return stopped_.load(); }
  void Wait() {
    for (const Pending& pending : pending_) {
      EXPECT_TRUE(pending.Wait(absl::Seconds(60)).ok());
    }
  }

 private:
  std::atomic<bool> stopped_ = false;
  int done_ = 0;
  std::vector<Pending> pending_;
  ChunkId home_ = kNoChunk;
  ChunkId device_ = kNoChunk;
  std::unique_ptr<Session> session_;  // ends first: its threads call this object
};

// The copies of a job, as the daemon counts them.
struct Copies {
  uint64_t waiting = 0;
  uint64_t under_way = 0;
  uint64_t made = 0;
};

// The copies of the light job and the heavy job at one moment.
std::array<Copies, 2> Look(testing::DaemonEnv& env) {
  return env.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
    std::array<Copies, 2> copies;
    for (const core::SessionSnapshot& session : engine.Sessions()) {
      constexpr int kUp = core::Index(core::Direction::kHostToDevice);
      Copies& of_job = copies[session.spec.job == "heavy" ? 1 : 0];
      of_job.waiting = session.queued_transfers;
      of_job.under_way = session.in_flight[kUp].tickets;
      for (const auto& count : session.transfers.counts[kUp]) of_job.made += count.transfers;
    }
    return copies;
  });
}

TEST(LinkSharesTest, JobsOfWeightsOneAndThree_MoveBytesOneToThree) {
  testing::DaemonEnv env;
  testing::DaemonEnvOptions options;
  options.link_bytes_in_flight = "64KiB";  // one copy at a time, of all sessions
  ASSERT_TRUE(env.Start(options).ok());
  Job light(env.socket(), "light", 1);
  Job heavy(env.socket(), "heavy", 3);
  light.Stop();
  light.SendAll([](int) {});
  heavy.SendAll([&](int done) {
    if (done == kLook) heavy.Stop();
  });
  // The first copy waits until all others have reached the daemon.
  std::array<Copies, 2> copies = Look(env);
  while (copies[0].waiting + copies[1].waiting < 2 * kCopies - 1) copies = Look(env);
  EXPECT_EQ(copies[0].under_way, 1u);
  light.GoOn();
  while (!heavy.stopped()) std::this_thread::yield();
  // Waits until only the stopped copy is in progress.
  do copies = Look(env);
  while (copies[1].under_way == 0);
  EXPECT_EQ(copies[0].under_way, 0u);
  EXPECT_GT(copies[0].waiting, 0u);
  ASSERT_GT(copies[1].waiting, 0u);
  ASSERT_GT(copies[1].made, kLook / 2);  // the daemon may not know the last ones yet
  // The tolerance is one copy of the light job, which counts as three of the heavy job.
  const auto light_made = static_cast<int>(copies[0].made);
  const auto heavy_made = static_cast<int>(copies[1].made);
  EXPECT_LE(std::abs(heavy_made - 3 * light_made), 3) << heavy_made << " and " << light_made;
  heavy.GoOn();
  heavy.Wait();
  light.Wait();
}

}  // namespace
}  // namespace geminid
