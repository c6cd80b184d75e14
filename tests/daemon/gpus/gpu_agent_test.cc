#include "daemon/gpus/gpu_agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "daemon/gpus/gpu_arena.h"
#include "daemon/os/event.h"
#include "tests/base/temporary_folder.h"

namespace geminid::gpus {
namespace {

using agent::AgentState;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr char kGpu[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr char kFault[] = "GEMINID_PUPPET";

// An agent on a loop that a thread of its own runs, as in the daemon.
class GpuAgentTest : public ::testing::Test {
 protected:
  void Start(const char* fault, agent::SupervisionOptions supervision = {}) {
    ::setenv(kFault, fault, 1);
    ::setenv("GEMINID_PUPPET_FOLDER", folder_.path().c_str(), 1);
    loop_ = *os::EventLoop::Create();
    agent_ = std::make_unique<GpuAgent>(GpuAgent::Options{.program = GEMINID_PUPPET_AGENT,
                                                          .gpu = kGpu,
                                                          .device = "device 1 (cuda, 8.0 GiB)",
                                                          .granularity_bytes = 2 * kMiB,
                                                          .supervision = supervision},
                                        loop_.get());
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        agent_->Step();
        const std::optional<int64_t> due = agent_->NextDeadline();
        const int64_t left = due.value_or(INT64_MAX) - os::MonotonicNanoseconds();
        loop_->RunOnce(static_cast<int>(std::clamp<int64_t>(left / 1'000'000 + 1, 0, 1000)));
      }
    });
  }
  void TearDown() override {
    if (loop_ == nullptr) return;
    loop_->Post([this] { stop_.store(true); });
    thread_.join();
    agent_.reset();
  }

  void OnLoop(std::function<void()> function) {
    std::promise<void> done;
    loop_->Post([&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }

  // Runs the loop until the condition holds. A condition that never holds hangs the test.
  template <typename Condition>
  AgentReading Await(Condition condition) {
    for (;;) {
      AgentReading reading = agent_->Read();
      if (condition(reading)) return reading;
      std::this_thread::yield();
    }
  }
  AgentReading AwaitState(AgentState state) {
    return Await([state](const AgentReading& reading) { return reading.state == state; });
  }

  size_t Held() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  void ReleaseAndWait(Slab slab, base::UniqueFd holder = {}) {
    std::promise<void> done;
    std::vector<Slab> slabs;
    slabs.push_back(std::move(slab));
    agent_->Release(std::move(slabs), std::move(holder), [&] { done.set_value(); });
    done.get_future().wait();
  }

  base::TemporaryFolder folder_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<GpuAgent> agent_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Agents restart soon, and are never given up.
constexpr agent::SupervisionOptions kSoonAgain = {.health_period = core::Duration::Milliseconds(20),
                                                  .first_pause = core::Duration::Milliseconds(1),
                                                  .longest_pause = core::Duration::Milliseconds(1),
                                                  .most_ends = 1000000};

// Use it only for agents that hang: an agent that waits for a processor also counts as hung.
constexpr core::Duration kShort = core::Duration::Milliseconds(200);
constexpr agent::SupervisionOptions ImpatientForHello() {
  agent::SupervisionOptions options = kSoonAgain;
  options.hello_patience = kShort;
  return options;
}
constexpr agent::SupervisionOptions ImpatientForAnswers() {
  agent::SupervisionOptions options = kSoonAgain;
  options.answer_patience = kShort;
  return options;
}

TEST_F(GpuAgentTest, Slab_IsMadeAskedForBeforeTheHelloAndReleased) {
  Start("");
  absl::StatusOr<Slab> slab = agent_->MakeSlab(4 * kMiB, /*scrub=*/false);
  ASSERT_TRUE(slab.ok()) << slab.status();
  struct stat file = {};
  ASSERT_EQ(::fstat(slab->fd.get(), &file), 0);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), 4 * kMiB);
  EXPECT_EQ(Held(), 1u);
  ReleaseAndWait(*std::move(slab));
  EXPECT_EQ(Held(), 0u);
}

TEST_F(GpuAgentTest, Scrub_ComesBeforeTheSlabIsHandedOut) {
  Start("");
  absl::StatusOr<Slab> slab = agent_->MakeSlab(2 * kMiB, /*scrub=*/true);
  ASSERT_TRUE(slab.ok()) << slab.status();
  std::ifstream file(folder_.path() + "/1");
  std::string word;
  file >> word;
  EXPECT_EQ(word, "scrubbed");
}

TEST_F(GpuAgentTest, Release_WaitsForTheEndOfTheHolder) {
  Start("");
  absl::StatusOr<Slab> slab = agent_->MakeSlab(2 * kMiB, false);
  ASSERT_TRUE(slab.ok()) << slab.status();
  const pid_t holder = ::fork();
  if (holder == 0) {
    for (;;) ::pause();
  }
  std::promise<void> done;
  std::future<void> released = done.get_future();
  std::vector<Slab> slabs;
  slabs.push_back(*std::move(slab));
  agent_->Release(std::move(slabs), *os::OpenPidfd(holder), [&] { done.set_value(); });
  // The loop has done its earlier work, and an answer of the agent came after it.
  ASSERT_TRUE(agent_->MakeSlab(2 * kMiB, false).ok());
  EXPECT_EQ(released.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(Held(), 2u);
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  released.wait();
  EXPECT_EQ(Held(), 1u);
}

TEST_F(GpuAgentTest, FullGpu_IsAnErrorOfTheCallAlone) {
  Start("full");
  const absl::Status status = agent_->MakeSlab(2 * kMiB, false).status();
  EXPECT_EQ(status, absl::ResourceExhaustedError("device 1 (cuda, 8.0 GiB): it is full"));
  EXPECT_EQ(agent_->Read().state, AgentState::kServing);
}

TEST_F(GpuAgentTest, KilledAgent_IsStartedAgainAndSlabsLiveOn) {
  Start("", kSoonAgain);
  absl::StatusOr<Slab> slab = agent_->MakeSlab(2 * kMiB, false);
  ASSERT_TRUE(slab.ok()) << slab.status();
  const pid_t first = AwaitState(AgentState::kServing).pid;
  ::kill(first, SIGKILL);
  const AgentReading after = Await([&](const AgentReading& reading) {
    return reading.state == AgentState::kServing && reading.pid != first;
  });
  EXPECT_GE(after.restarts, 1u);
  EXPECT_THAT(after.why, HasSubstr("signal 9"));
  EXPECT_EQ(::fcntl(slab->fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);  // still open
  // The second agent does not know the slab, and gives the same number to a slab of its own.
  absl::StatusOr<Slab> second = agent_->MakeSlab(2 * kMiB, false);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->id, slab->id);
  ReleaseAndWait(*std::move(slab));
  EXPECT_EQ(Held(), 1u);
  ReleaseAndWait(*std::move(second));
  EXPECT_EQ(Held(), 0u);
}

TEST_F(GpuAgentTest, HungAgent_IsKilledAndTheCallRefused) {
  Start("hang_create", ImpatientForAnswers());
  const absl::Status status = agent_->MakeSlab(2 * kMiB, false).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("device 1 (cuda, 8.0 GiB) has no new memory now"),
                    HasSubstr("did not answer"), HasSubstr("stays valid")));
  ::setenv(kFault, "", 1);
  Await([](const AgentReading& reading) {
    return reading.state == AgentState::kServing && reading.restarts > 0;
  });
  // An agent that was started with the fault may still be there.
  absl::StatusOr<Slab> slab = agent_->MakeSlab(2 * kMiB, false);
  while (!slab.ok()) slab = agent_->MakeSlab(2 * kMiB, false);
}

TEST_F(GpuAgentTest, BrokenAgents_AreNeverBelieved) {
  for (const char* fault : {"garbage", "no_fd", "wrong_id", "die_create"}) {
    Start(fault, kSoonAgain);
    const absl::Status status = agent_->MakeSlab(2 * kMiB, false).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << fault << ": " << status;
    TearDown();
    stop_.store(false);
  }
  loop_.reset();
}

TEST_F(GpuAgentTest, AgentsThatMayNotServe_AreSaidWhy) {
  const std::pair<const char*, const char*> kCases[] = {
      {"other_gpu", "it is the agent of GPU-00000000-0000-0000-0000-000000000009"},
      {"twice", "it said hello twice"},
      {"coarse", "its slabs are multiples of 4194304"},
      {"refuse", "no driver here"}};
  for (const auto& [fault, why] : kCases) {
    Start(fault, kSoonAgain);
    const AgentReading reading = Await([](const AgentReading& now) { return !now.why.empty(); });
    EXPECT_THAT(reading.why, HasSubstr(why)) << fault;
    TearDown();
    stop_.store(false);
  }
  loop_.reset();
}

TEST_F(GpuAgentTest, AgentThatSaysNoHello_IsSaidWhy) {
  Start("hang_hello", ImpatientForHello());
  const AgentReading reading = Await([](const AgentReading& now) { return !now.why.empty(); });
  EXPECT_THAT(reading.why, HasSubstr("it sent nothing for 0.2 s"));
}

TEST_F(GpuAgentTest, AgentThatNeverStarts_IsGivenUpUntilRetry) {
  agent::SupervisionOptions supervision = kSoonAgain;
  supervision.most_ends = 3;
  Start("refuse", supervision);
  AwaitState(AgentState::kGivenUp);
  const absl::Status status = agent_->MakeSlab(2 * kMiB, false).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("send geminid SIGHUP"));
  ::setenv(kFault, "", 1);
  OnLoop([this] { agent_->Retry(); });
  EXPECT_EQ(AwaitState(AgentState::kServing).restarts, 3u);
  EXPECT_TRUE(agent_->MakeSlab(2 * kMiB, false).ok());
}

TEST_F(GpuAgentTest, Health_IsThatOfTheHelloUntilItIsAskedFor) {
  Start("", kSoonAgain);
  const AgentReading hello = Await([](const AgentReading& now) { return now.health.has_value(); });
  EXPECT_EQ(hello.health->total_bytes, uint64_t{8} << 30);
  // The puppet always reports that half of its GPU is free.
  Await([](const AgentReading& now) { return now.health->free_bytes == uint64_t{4} << 30; });
}

TEST_F(GpuAgentTest, UnhealthyGpu_IsNotFitUntilRetryAndThroughTheEndOfItsAgent) {
  Start("xid", kSoonAgain);
  const pid_t pid = AwaitState(AgentState::kServing).pid;
  Await([](const AgentReading& now) { return !now.xids.counts().empty(); });
  ::setenv(kFault, "", 1);
  ::kill(pid, SIGKILL);
  Await(
      [&](const AgentReading& now) { return now.state == AgentState::kServing && now.pid != pid; });
  const absl::Status status = agent_->CheckFit();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("takes no new sessions"), HasSubstr("Xid 79"), HasSubstr("SIGHUP")));
  OnLoop([this] { agent_->Retry(); });
  EXPECT_TRUE(agent_->CheckFit().ok());
  EXPECT_EQ(agent_->Read().xids.counts().at(79), 1u) << "it stays counted";
}

TEST_F(GpuAgentTest, Close_EndsTheProcessAndWhoWaits) {
  Start("hang_create");
  const pid_t pid = AwaitState(AgentState::kServing).pid;
  std::future<absl::Status> waits =
      std::async(std::launch::async, [this] { return agent_->MakeSlab(2 * kMiB, false).status(); });
  Await([](const AgentReading&) { return true; });
  OnLoop([this] { agent_->Close(); });
  EXPECT_TRUE(absl::IsCancelled(waits.get()));
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(GpuAgentTest, Arena_HasAllItsSlabsOrGivesBackWhatItGot) {
  Start("");
  GpuArena arena(agent_.get());
  std::atomic<bool> cancelled{false};
  ASSERT_TRUE(arena.Fill(6 * kMiB, false, cancelled).ok());
  ASSERT_EQ(arena.slabs().size(), 1u);
  EXPECT_EQ(arena.slabs()[0].bytes, 6 * kMiB);
  std::promise<absl::Status> done;
  arena.Revoke({}, [&](const absl::Status& status) { done.set_value(status); });
  EXPECT_TRUE(done.get_future().get().ok());
  EXPECT_EQ(Held(), 0u);
  cancelled.store(true);
  EXPECT_TRUE(absl::IsCancelled(arena.Fill(6 * kMiB, false, cancelled)));
}

}  // namespace
}  // namespace geminid::gpus
