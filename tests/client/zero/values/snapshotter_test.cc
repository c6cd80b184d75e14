// A snapshot is of one step, no matter what later steps do meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/client/zero/deadline.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

// The time for which the sink holds the first granule while training must wait.
constexpr auto kPatience = std::chrono::milliseconds(300);

// Collects values. Holds the first granule until Release, or until its patience ends.
class SlowSink final : public SnapshotSink {
 public:
  absl::Status Write(ParameterId id, StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    std::unique_lock lock(mutex_);
    if (std::exchange(first_, false)) {
      released_.wait_for(lock, kPatience, [this] { return release_; });
    }
    if (!error_.ok()) return error_;
    std::vector<float>& kept = values_[{static_cast<uint32_t>(id), kind}];
    kept.resize(std::max<size_t>(kept.size(), offset + values.size()));
    std::copy(values.begin(), values.end(), kept.begin() + static_cast<ptrdiff_t>(offset));
    elements_ += values.size();
    return absl::OkStatus();
  }
  void Release() {
    {
      std::lock_guard lock(mutex_);
      release_ = true;
    }
    released_.notify_all();
  }
  void FailWith(const absl::Status& error) { error_ = error; }
  uint64_t elements() const { return elements_; }
  const std::vector<float>& Values(uint32_t parameter, StateKind kind) {
    return values_[{parameter, kind}];
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool first_ = true;
  bool release_ = false;
  absl::Status error_;
  uint64_t elements_ = 0;
  std::map<std::pair<uint32_t, StateKind>, std::vector<float>> values_;
};

class SnapshotTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.steps = 6;
    run_.arena_bytes = kTightArena;
    // The second operator after the snapshot began means that weights were updated meanwhile.
    run_.operator_time = [this](int, int step) {
      if (step == 4) sink_->Release();
      return absl::ZeroDuration();
    };
  }

  std::shared_ptr<SlowSink> sink_ = std::make_shared<SlowSink>();
};

TEST_F(SnapshotTest, TrainingGoesOn_TheValuesAreThoseOfTheStep) {
  std::vector<std::vector<float>> expected;
  absl::Status started;
  absl::Status ended;
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step == 2) {
      for (uint32_t p = 0; p < run_.model.parameters.size(); ++p) {
        expected.push_back(*engine->ReadParameter(ParameterId{p}));
      }
      started = engine->StartSnapshot(sink_);
      EXPECT_EQ(engine->StartSnapshot(sink_).code(), absl::StatusCode::kFailedPrecondition);
    }
    if (step == 5) ended = engine->WaitSnapshot();
  };
  const SyntheticResult result = MustTrain();
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_TRUE(ended.ok()) << ended;
  uint64_t elements = 0;
  for (uint32_t p = 0; p < expected.size(); ++p) {
    EXPECT_EQ(sink_->Values(p, StateKind::kMaster), expected[p]);
    const bool trained = run_.model.parameters[p].trainable;
    EXPECT_EQ(sink_->Values(p, StateKind::kExpAvg).size(), trained ? expected[p].size() : 0);
    elements += expected[p].size() * (trained ? 3 : 1);
  }
  EXPECT_EQ(sink_->elements(), elements) << "each part once";
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(SnapshotTest, TrainingGoesOnWithUpdatesInItsBackward_TheValuesAreThoseOfTheStep) {
  run_.options.update = UpdateTime::kInBackward;
  run_.world_size = 2;
  std::vector<std::vector<float>> expected;
  std::array<std::shared_ptr<SlowSink>, 2> sinks = {sink_, std::make_shared<SlowSink>()};
  std::array<absl::Status, 2> ended;
  run_.between_steps = [&](Engine* engine, int rank, int step) {
    const auto mine = static_cast<size_t>(rank);
    if (step == 2) {
      for (uint32_t p = 0; p < run_.model.parameters.size(); ++p) {
        const std::vector<float> values = *engine->ReadParameter(ParameterId{p});
        if (rank == 0) expected.push_back(values);
      }
      EXPECT_TRUE(engine->StartSnapshot(sinks[mine]).ok());
    }
    if (step == 5) ended[mine] = engine->WaitSnapshot();
  };
  const SyntheticResult result = MustTrain();
  for (const absl::Status& status : ended) ASSERT_TRUE(status.ok()) << status;
  uint64_t elements = 0;
  for (uint32_t p = 0; p < expected.size(); ++p) {
    elements += 3 * expected[p].size();
    std::vector<float> together(expected[p].size());
    for (const auto& sink : sinks) {
      const std::vector<float>& part = sink->Values(p, StateKind::kMaster);
      for (size_t i = 0; i < part.size(); ++i) together[i] += part[i];
    }
    EXPECT_EQ(together, expected[p]) << "of parameter " << p;
  }
  EXPECT_EQ(sinks[0]->elements() + sinks[1]->elements(), elements) << "each part once";
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(SnapshotTest, SinkThatFails_EndsTheSnapshotAndNotTheRun) {
  sink_->FailWith(absl::ResourceExhaustedError("no room"));
  absl::Status ended;
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step == 2) {
      EXPECT_TRUE(engine->StartSnapshot(sink_).ok());
    }
    if (step == 5) ended = engine->WaitSnapshot();
  };
  const SyntheticResult result = MustTrain();
  EXPECT_EQ(ended, absl::ResourceExhaustedError("no room"));
  ExpectSameBits(result.weights, TrainDensely(run_));
}

// Makes all callers wait until it is released.
class StuckSink final : public SnapshotSink {
 public:
  absl::Status Write(ParameterId, StateKind, uint64_t, std::span<const float>) override {
    released_.WaitForNotification();
    return absl::OkStatus();
  }
  void Release() { released_.Notify(); }

 private:
  absl::Notification released_;
};

TEST_F(SnapshotTest, SinkThatDoesNotAnswer_IsWaitedForUntilTheDeadline) {
  const auto stuck = std::make_shared<StuckSink>();
  run_.options.timeout = kDeadline;
  absl::Status at_deadline, ended;
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step != 2) return;
    EXPECT_TRUE(engine->StartSnapshot(stuck).ok());
    at_deadline = engine->WaitSnapshot();
    stuck->Release();
    while (absl::IsDeadlineExceeded(ended = engine->WaitSnapshot())) {
    }
  };
  const SyntheticResult result = MustTrain();
  EXPECT_EQ(at_deadline.code(), absl::StatusCode::kDeadlineExceeded) << at_deadline;
  EXPECT_TRUE(ended.ok()) << ended;
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(SnapshotTest, EngineThatEnds_DoesNotWaitForTheWholeSnapshot) {
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step == 5) {
      EXPECT_TRUE(engine->StartSnapshot(sink_).ok());
    }
  };
  MustTrain();
}

TEST_F(SnapshotTest, MisuseOfShards_IsAnErrorAndChangesNothing) {
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step != 2) return;
    const std::array<float, 1> one = {1.0F};
    EXPECT_EQ(engine->WriteShard(ParameterId{12345}, StateKind::kMaster, 0, one).code(),
              absl::StatusCode::kInvalidArgument);
    Progress bad;
    bad.updates = 1;
    EXPECT_EQ(engine->Restore(bad).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(engine->ShardOf(ParameterId{12345}).empty());
    EXPECT_FALSE(engine->HasState(ParameterId{12345}, StateKind::kMaster));
  };
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(SnapshotTest, WriteOutsideTheShard_IsRefused) {
  run_.prepare = [&](Engine* engine, collectives::Communicator*, int) {
    const std::vector<ShardRange> shard = engine->ShardOf(ParameterId{0});
    EXPECT_FALSE(shard.empty());
    const std::vector<float> values(shard.back().elements + 1);
    EXPECT_EQ(
        engine->WriteShard(ParameterId{0}, StateKind::kMaster, shard.back().offset, values).code(),
        absl::StatusCode::kInvalidArgument);
    Progress bad;
    bad.updates = 1;
    EXPECT_EQ(engine->Restore(bad).code(), absl::StatusCode::kInvalidArgument);
    bad = {};
    bad.tensor_state.resize(1);
    EXPECT_EQ(engine->Restore(bad).code(), absl::StatusCode::kInvalidArgument);
    return absl::OkStatus();
  };
  MustTrain();
}

}  // namespace
}  // namespace geminid::zero
