// The engine's contract with trainers that compute on streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/src/session_internal.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/client/zero/deadline.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 2048;
constexpr ParameterId kA{0}, kB{1}, kC{2};

// Holds a stream until the barrier is opened or destroyed.
class Barrier {
 public:
  explicit Barrier(Stream* stream) {
    stream->Enqueue([open = open_] {
      while (!open->load()) std::this_thread::yield();
    });
  }
  ~Barrier() { Open(); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void Open() { open_->store(true); }

 private:
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

class EngineStreamsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  // Parameters of one chunk each, with the values 1, 2 and 3. After a step was `trained` there is a
  // plan, in which weights are dropped after each operator. There is room for two chunks.
  void Make(absl::Duration timeout = absl::Seconds(60), bool trained = true,
            std::function<absl::Time()> clock = {}) {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 20 << 10;
    connect.strict_device = true;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    Options options;
    options.data_type = DataType::kFloat32;
    options.clip_norm = 0;
    options.chunk_elements = kElements;
    options.placement = Placement::kCpu;
    options.timeout = timeout;
    options.clock = std::move(clock);
    auto engine = Engine::Create(session_.get(), communicator_.get(),
                                 {{.name = "a", .shape = {kElements}},
                                  {.name = "b", .shape = {kElements}},
                                  {.name = "c", .shape = {kElements}}},
                                 options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_
                    ->Initialize([](ParameterId id, std::span<float> values) {
                      std::ranges::fill(values, 1 + static_cast<float>(id));
                      return absl::OkStatus();
                    })
                    .ok());
    for (ParameterId id : {kA, kB, kC}) order_.push_back({Pass::kForward, id});
    for (ParameterId id : {kC, kB, kA}) order_.push_back({Pass::kBackward, id});
    if (!trained) return;
    ASSERT_TRUE(MicroBatch().ok());
    ASSERT_TRUE(engine_->Step({.learning_rate = 0}).ok());
    ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  }

  // Runs an operator on the stream. read_ gets the values that the operator reads.
  absl::Status Operator(Pass pass, ParameterId id) {
    auto operation = engine_->Use(pass, std::vector<ParameterId>{id}, handle());
    if (!operation.ok()) return operation.status();
    const auto* weight =
        reinterpret_cast<const float*>(session_->HostAddress(operation->Weight(id)));
    auto* gradient = reinterpret_cast<float*>(session_->HostAddress(operation->Gradient(id)));
    stream_().Enqueue([this, weight, gradient] {
      const bool same =
          std::all_of(weight, weight + kElements, [&](float value) { return value == weight[0]; });
      read_.push_back(same ? weight[0] : -1);
      if (gradient != nullptr) std::fill_n(gradient, kElements, 1.0f);
    });
    if (pass == Pass::kBackward) {
      if (absl::Status status = operation->GradientWritten(id); !status.ok()) return status;
    }
    return operation->Finish();
  }
  absl::Status MicroBatch() {
    absl::Status status = engine_->BeginMicroBatch();
    for (const auto& [pass, id] : order_) {
      if (status.ok()) status = Operator(pass, id);
    }
    return status;
  }

  // Gives moves the time to go as far as they can without the stream: a few answers of the daemon.
  void LetMovesGoOn() {
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(session_->GetMemoryUse().ok());
  }

  Stream& stream_() { return session_->compute_stream(); }
  StreamHandle handle() { return {&stream_()}; }
  Stream* copies() { return &DeviceOf(*session_)->copy_stream(device::Direction::kHostToDevice); }

  geminid::testing::DaemonEnv env_;
  std::vector<float> read_;  // written by the stream, which ends with the session
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::pair<Pass, ParameterId>> order_;
};

TEST_F(EngineStreamsTest, Use_ReturnsBeforeTheParametersComeAndTheStreamWaitsForThem) {
  Make();
  read_.clear();
  Barrier barrier(copies());
  ASSERT_TRUE(Operator(Pass::kForward, kA).ok());
  ASSERT_TRUE(Operator(Pass::kForward, kB).ok());
  const std::shared_ptr<const Event> end = stream_().Record();
  EXPECT_FALSE(end->ready());
  barrier.Open();
  ASSERT_TRUE(engine_->Synchronize().ok());
  EXPECT_TRUE(end->ready());
  EXPECT_EQ(read_, (std::vector<float>{1, 2}));
}

TEST_F(EngineStreamsTest, FirstMicroBatch_DoesNotWaitEitherAndIsMeasuredByItsStream) {
  std::atomic<int64_t> now_seconds = 0;
  Make(absl::Seconds(60), /*trained=*/false,
       [&] { return absl::UnixEpoch() + absl::Seconds(now_seconds.load()); });
  {
    Barrier barrier(copies());
    ASSERT_TRUE(engine_->BeginMicroBatch().ok());
    for (const auto& [pass, id] : order_) {
      ASSERT_TRUE(Operator(pass, id).ok());
      stream_().Enqueue([&] { ++now_seconds; });
    }
    EXPECT_FALSE(stream_().Record()->ready());
    EXPECT_TRUE(read_.empty());
  }
  ASSERT_TRUE(engine_->Step({.learning_rate = 0}).ok());
  EXPECT_EQ(read_, (std::vector<float>{1, 2, 3, 3, 2, 1}));
  // Six operators take a second each.
  EXPECT_THAT(engine_->GetStatistics()->plan_explanation, HasSubstr("6000.000 ms of computation"));
}

TEST_F(EngineStreamsTest, Finish_DoesNotWaitAndMemoryIsNotUsedAgainBeforeItsWork) {
  Make();
  read_.clear();
  Barrier barrier(&stream_());
  // The third chunk has room only in the first one's place, which the stream has still to read.
  for (ParameterId id : {kA, kB, kC}) ASSERT_TRUE(Operator(Pass::kForward, id).ok());
  LetMovesGoOn();
  EXPECT_FALSE(stream_().Record()->ready());
  barrier.Open();
  ASSERT_TRUE(engine_->Synchronize().ok());
  EXPECT_EQ(read_, (std::vector<float>{1, 2, 3}));
}

TEST_F(EngineStreamsTest, Gradient_IsReducedOnceTheStreamHasWrittenIt) {
  Make();
  for (ParameterId id : {kA, kB, kC}) ASSERT_TRUE(Operator(Pass::kForward, id).ok());
  {
    Barrier barrier(&stream_());
    for (ParameterId id : {kC, kB, kA}) ASSERT_TRUE(Operator(Pass::kBackward, id).ok());
    LetMovesGoOn();
  }
  const auto step = engine_->Step({.learning_rate = 0.1});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_DOUBLE_EQ(step->gradient_norm * step->gradient_norm, 3.0 * kElements);
}

TEST_F(EngineStreamsTest, EvaluationAfterTheNorm_ReadsTheWeightsOfBeforeTheStep) {
  Make();
  for (const auto& [pass, id] : order_) ASSERT_TRUE(Operator(pass, id).ok());
  ASSERT_TRUE(engine_->GradientNorm().ok());
  read_.clear();
  Barrier barrier(copies());
  ASSERT_TRUE(Operator(Pass::kEvaluate, kA).ok());
  std::thread step([this] { EXPECT_TRUE(engine_->Step({.learning_rate = 0.1}).ok()); });
  LetMovesGoOn();
  barrier.Open();
  step.join();
  ASSERT_TRUE(engine_->Synchronize().ok());
  EXPECT_EQ(read_, (std::vector<float>{1}));
}

// One of two ranks. Parameters are gathered from both.
class RankOfTwo {
 public:
  RankOfTwo(const std::string& socket, int rank, collectives::Communicator* communicator) {
    ConnectOptions connect;
    connect.socket = socket;
    connect.rank = connect.local_rank = rank;
    connect.world_size = 2;
    connect.device_memory_bytes = 64 << 10;
    session_ = *Session::Connect(connect);
    Options options;
    options.data_type = DataType::kFloat32;
    options.chunk_elements = kElements;
    options.state_placement = StatePlacement::kHost;
    std::vector<Parameter> parameters;
    for (const char* name : {"a", "b", "c"}) parameters.push_back({name, {kElements}});
    engine_ = *Engine::Create(session_.get(), communicator, parameters, options);
  }

  // An operator that stays open until Synchronize, so that each has a place of its own.
  void Evaluate(ParameterId id) {
    const StreamHandle stream = {&session_->compute_stream()};
    auto operation = engine_->Use(Pass::kEvaluate, std::vector<ParameterId>{id}, stream);
    ASSERT_TRUE(operation.ok()) << operation.status();
    operations_.push_back(*std::move(operation));
  }
  // Waits until so many shards were copied to the device.
  bool WaitForShards(uint64_t shards) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (session_->Totals().host_to_device_bytes < shards * kElements / 2 * sizeof(float)) {
      if (absl::Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  absl::Status Synchronize() {
    operations_.clear();
    return engine_->Synchronize();
  }

 private:
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
  std::vector<Operation> operations_;
};

TEST_F(EngineStreamsTest, Copies_StartWhileACollectiveWaitsForAnotherRank) {
  auto communicators = collectives::MakeLocalCommunicators(2);
  std::atomic<bool> first_is_there = false;
  std::thread other([&] {
    RankOfTwo rank(env_.socket(), 1, communicators[1].get());
    while (!first_is_there.load()) std::this_thread::yield();
    for (ParameterId id : {kA, kB, kC}) rank.Evaluate(id);
    EXPECT_TRUE(rank.Synchronize().ok());
  });
  RankOfTwo rank(env_.socket(), 0, communicators[0].get());
  uint64_t shards = 0;
  for (ParameterId id : {kA, kB, kC}) {
    rank.Evaluate(id);
    EXPECT_TRUE(rank.WaitForShards(++shards)) << shards;
  }
  first_is_there.store(true);
  EXPECT_TRUE(rank.Synchronize().ok());
  other.join();
}

TEST_F(EngineStreamsTest, NullStream_IsTheCallingThread) {
  Make();
  auto operation = engine_->Use(Pass::kForward, std::vector<ParameterId>{kA}, StreamHandle{});
  ASSERT_TRUE(operation.ok()) << operation.status();
  const std::byte* const weight = session_->HostAddress(operation->Weight(kA));
  EXPECT_EQ(*reinterpret_cast<const float*>(weight), 1);
  EXPECT_TRUE(operation->Finish(StreamHandle{}).ok());
}

TEST_F(EngineStreamsTest, ParameterThatDoesNotCome_FailsTheNextCallAndLetsTheStreamGo) {
  Make(kDeadline);
  Barrier barrier(copies());
  ASSERT_TRUE(Operator(Pass::kForward, kA).ok());
  ASSERT_TRUE(stream_().Record()->WaitFor(absl::Seconds(20)));
  const absl::Status status = Operator(Pass::kForward, kB);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("waited for 'a'"));
  EXPECT_EQ(engine_->Synchronize(), status);
}

TEST_F(EngineStreamsTest, WorkThatDoesNotEnd_IsADeadlineOfSynchronize) {
  Make(kDeadline);
  ASSERT_TRUE(Operator(Pass::kForward, kA).ok());
  ASSERT_TRUE(engine_->Synchronize().ok());
  Barrier barrier(&stream_());
  ASSERT_TRUE(Operator(Pass::kForward, kB).ok());
  const absl::Status status = engine_->Synchronize();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainer's streams"));
  barrier.Open();
  stream_().Synchronize();  // the stream's work refers to this object
}

}  // namespace
}  // namespace geminid::zero
