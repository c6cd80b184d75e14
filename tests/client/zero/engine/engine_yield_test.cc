// A job of low priority gives its device to a job of high priority between two steps, and waits. It
// ends with the bits of an undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "daemon/service/entry/daemon.h"
#include "geminid/activation_store.h"
#include "geminid/session.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kDeviceBytes = 16 << 20;
constexpr int kDisturbedStep = 2;

class EngineYieldTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    env_.Stop();
    geminid::testing::DaemonEnvOptions options;
    options.device_memory = "16MiB";
    ASSERT_TRUE(env_.Start(options).ok());
    run_.steps = 5;
    run_.job = "low";
    run_.admission = {.priority = -1, .preemptible = true};
  }

  // The high job asks for the whole device in the low job's third step, and has it for a moment.
  void Disturb() {
    run_.before_step = [this](int rank, int step) {
      if (rank != 0 || step != kDisturbedStep) return absl::OkStatus();
      std::promise<std::string> asked;
      std::future<std::string> waits = asked.get_future();
      high_ = std::thread([this, asked = std::move(asked)]() mutable {
        bool first = true;
        ConnectOptions connect;
        connect.socket = env_.socket();
        connect.job = "high";
        connect.device_memory_bytes = kDeviceBytes;
        connect.admission = {.on_wait = [&](const std::string& what) {
          if (std::exchange(first, false)) asked.set_value(what);
          return absl::OkStatus();
        }};
        const auto session = Session::Connect(connect);
        EXPECT_TRUE(session.ok()) << session.status();
        high_ran_ = session.ok();
        low_was_ = StateOfLow();
        if (first) asked.set_value("");
      });
      what_ = waits.get();  // by then the daemon has asked the low job to yield
      return absl::OkStatus();
    };
  }

  void ExpectUndisturbedBits() {
    const SyntheticResult calm = MustTrain();
    Disturb();
    const SyntheticResult disturbed = MustTrain();
    if (high_.joinable()) high_.join();
    EXPECT_TRUE(high_ran_);
    EXPECT_EQ(low_was_, "preempted");
    EXPECT_THAT(what_, HasSubstr("job high is queued, position 1"));
    EXPECT_THAT(what_, HasSubstr("jobs of lower priority were asked to make room"));
    ExpectSameBits(disturbed.weights, calm.weights);
    ExpectSameBits(disturbed.weights, TrainDensely(run_));
  }

  // "" if the job has ended.
  std::string StateOfLow() {
    return env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) -> std::string {
      for (const core::JobSnapshot& job : engine.jobs().Jobs()) {
        if (job.name.job == "low") return core::Name(job.standing.state);
      }
      return "";
    });
  }

  std::thread high_;
  std::string low_was_;  // while the high job had the device
  bool high_ran_ = false;
  std::string what_;
};

TEST_F(EngineYieldTest, StateOnTheHost_SameBits) {
  run_.arena_bytes = 1 << 20;
  run_.options.state_placement = StatePlacement::kHost;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, PlacesOfStreamedState_ComeBack_SameBits) {
  run_.arena_bytes = 1 << 20;
  run_.options.state_placement = StatePlacement::kStreamed;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, TwoRanks_YieldTogether_SameBits) {
  run_.world_size = 2;
  run_.arena_bytes = 2 << 20;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, SomeStateOnTheDevice_ComesBackToItsPlace_SameBits) {
  run_.arena_bytes = 8 << 20;
  run_.options.state_placement = StatePlacement::kAuto;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, EverythingOnTheDevice_IsKeptOnTheHostMeanwhile_SameBits) {
  run_.arena_bytes = 8 << 20;
  run_.options.placement = Placement::kDevice;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, Float32WithAccumulation_SameBits) {
  run_.arena_bytes = 8 << 20;
  run_.options.data_type = DataType::kFloat32;
  run_.options.accumulate = 2;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, ActivationsInHostMemory_SameBits) {
  run_.arena_bytes = 8 << 20;
  run_.activation_places = 2;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, ItemsOfAStore_ComeBackAfterwards_SameBits) {
  run_.arena_bytes = 8 << 20;
  const std::vector<std::byte> saved(100000, std::byte{5});
  ActivationStore* store = nullptr;
  std::vector<uint64_t> items;
  run_.prepare = [&](Engine* engine, collectives::Communicator*, int) -> absl::Status {
    const auto made = MakeActivationStore(engine, {.place_bytes = 16384, .places = 2});
    if (!made.ok()) return made.status();
    store = *made;
    items.clear();
    return engine->Initialize([](ParameterId, std::span<float>) { return absl::OkStatus(); });
  };
  run_.between_steps = [&](Engine*, int, int) {
    items.push_back(store->Save(saved.data(), saved.size(), {}).value());
    for (const uint64_t item : items) {
      std::vector<std::byte> back(saved.size());
      EXPECT_TRUE(store->Load(item, back.data(), back.size(), {}).ok());
      EXPECT_EQ(back, saved);
    }
  };
  const SyntheticResult calm = MustTrain();
  Disturb();
  const SyntheticResult disturbed = MustTrain();
  if (high_.joinable()) high_.join();
  EXPECT_EQ(low_was_, "preempted");
  ExpectSameBits(disturbed.weights, calm.weights);
}

TEST_F(EngineYieldTest, WeightsThatStay_SameBits) {
  run_.arena_bytes = 8 << 20;
  run_.options.accumulate = 2;
  run_.options.stage = Stage::kGradients;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, WeightsShardedWithinHosts_SameBits) {
  run_.world_size = 2;
  run_.ranks_per_host = 1;
  run_.arena_bytes = 2 << 20;
  run_.options.accumulate = 2;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, SumsOfGradients_SameBits) {
  run_.arena_bytes = 8 << 20;
  run_.options.accumulate = 2;
  run_.options.stage = Stage::kState;
  ExpectUndisturbedBits();
}

TEST_F(EngineYieldTest, JobThatIsNotPreemptible_IsWaitedFor) {
  run_.arena_bytes = 8 << 20;
  run_.admission->preemptible = false;
  const SyntheticResult calm = MustTrain();
  Disturb();
  const SyntheticResult disturbed = MustTrain();
  if (high_.joinable()) high_.join();
  EXPECT_TRUE(high_ran_);
  EXPECT_THAT(what_, HasSubstr("needs 16.0 MiB of device 0, of which it can have 8.0 MiB"));
  ExpectSameBits(disturbed.weights, calm.weights);
}

// The operator evicts the job from its device until its wait was reported twice. Each report takes
// 1000 s on this clock, and nothing else takes time.
TEST_F(EngineYieldTest, WaitForTheDevice_IsNoStall) {
  run_.arena_bytes = 1 << 20;
  absl::Time clock = absl::UnixEpoch();
  run_.options.clock = [&clock] { return clock; };
  bool evicted = false;
  int told = 0;
  const auto hold = [this](bool on) {
    return env_.daemon().hub().HoldJobs("uid:" + std::to_string(getuid()), "low", on).status();
  };
  run_.admission->on_wait = [&](const std::string&) {
    if (!evicted) return absl::OkStatus();
    clock += absl::Seconds(1000);
    return ++told == 2 ? hold(false) : absl::OkStatus();
  };
  run_.before_step = [&](int, int step) {
    if (step != kDisturbedStep) return absl::OkStatus();
    evicted = true;
    return hold(true);
  };
  const SyntheticResult result = MustTrain();
  EXPECT_EQ(told, 2);
  const Statistics& statistics = result.statistics[0];
  EXPECT_GE(statistics.queued_seconds, 2000);
  EXPECT_LT(statistics.queued_seconds, 2500);  // before its admission it hardly waited
  EXPECT_EQ(statistics.stall_seconds, 0);
  ExpectSameBits(result.weights, TrainDensely(run_));
}

// The operator evicts the job from its device, and the user gives up.
class EngineWaitEndedTest : public EngineYieldTest {
 protected:
  void SetUp() override {
    EngineYieldTest::SetUp();
    run_.admission->on_wait = [this](const std::string& what) {
      if (!evicted_) return absl::OkStatus();
      return absl::CancelledError("the user gave up: " + what);
    };
    run_.before_step = [this](int rank, int step) {
      if (rank != 0 || step != kDisturbedStep) return absl::OkStatus();
      evicted_ = true;
      return env_.daemon().hub().HoldJobs("uid:" + std::to_string(getuid()), "low", true).status();
    };
    run_.between_steps = [this](Engine* engine, int rank, int step) {
      if (step == kDisturbedStep) LookAround(engine, rank);
    };
  }

  void LookAround(Engine* engine, int rank) {
    const absl::StatusOr<Operation> use = engine->Use(Pass::kForward, {});
    EXPECT_EQ(use.status().code(), absl::StatusCode::kCancelled) << use.status();
    EXPECT_EQ(engine->BeginMicroBatch().code(), absl::StatusCode::kCancelled);
    for (uint32_t p = 0; p < run_.model.parameters.size(); ++p) {
      absl::StatusOr<std::vector<float>> values = engine->ReadParameter(ParameterId{p});
      ASSERT_TRUE(values.ok()) << values.status();
      if (rank == 0) weights_.push_back(*std::move(values));
    }
  }

  void ExpectWholeState() {
    SyntheticResult result;
    const std::vector<absl::Status> ends = TrainStatuses(run_, &result);
    for (const absl::Status& end : ends) {
      EXPECT_EQ(end.code(), absl::StatusCode::kCancelled) << end;
      EXPECT_THAT(std::string(end.message()), HasSubstr("the engine has no device memory"));
    }
    EXPECT_THAT(std::string(ends.front().message()), HasSubstr("the user gave up: job low is"));
    ASSERT_EQ(result.steps.size(), kDisturbedStep + 1u);
    for (int step = 0; step <= kDisturbedStep; ++step) {
      EXPECT_EQ(result.steps[static_cast<size_t>(step)].wait_ended, step == kDisturbedStep);
    }
    run_.steps = kDisturbedStep + 1;
    ExpectSameBits(weights_, TrainDensely(run_));
  }

  std::atomic<bool> evicted_ = false;
  std::vector<std::vector<float>> weights_;  // after the step that lost the device
};

TEST_F(EngineWaitEndedTest, StateOnTheHost_IsWhole) {
  run_.arena_bytes = 1 << 20;
  run_.options.state_placement = StatePlacement::kHost;
  ExpectWholeState();
}

TEST_F(EngineWaitEndedTest, TwoRanks_EndTheWaitTogether) {
  run_.world_size = 2;
  run_.arena_bytes = 2 << 20;
  ExpectWholeState();
}

TEST_F(EngineWaitEndedTest, SomeStateOnTheDevice_IsReadOnTheHost) {
  run_.arena_bytes = 8 << 20;
  run_.options.state_placement = StatePlacement::kAuto;
  ExpectWholeState();
}

TEST_F(EngineWaitEndedTest, EverythingOnTheDevice_IsReadOnTheHost) {
  run_.arena_bytes = 8 << 20;
  run_.options.placement = Placement::kDevice;
  ExpectWholeState();
}

}  // namespace
}  // namespace geminid::zero
