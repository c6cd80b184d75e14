// The engine's tickets to the daemon: the moment that needs a copy, and that the trainer's own
// chunks may be evicted for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "client/src/session_impl.h"
#include "collectives/local/local_communicator.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kElements = 2048;
constexpr ParameterId kA{0}, kB{1}, kC{2};

class EngineTicketsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  void Connect(uint64_t arena_bytes) {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = arena_bytes;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  // Three parameters of one chunk each.
  void MakeEngine(Placement placement, StatePlacement state) {
    Options options;
    options.data_type = DataType::kFloat32;
    options.clip_norm = 0;
    options.chunk_elements = kElements;
    options.placement = placement;
    options.state_placement = state;
    options.timeout = absl::Seconds(30);
    std::vector<Parameter> parameters;
    for (const char* name : {"a", "b", "c"}) parameters.push_back({name, {kElements}});
    auto engine = Engine::Create(session_.get(), communicator_.get(), parameters, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_
                    ->Initialize([](ParameterId id, std::span<float> values) {
                      std::ranges::fill(values, 1 + static_cast<float>(id));
                      return absl::OkStatus();
                    })
                    .ok());
  }

  absl::Status Operator(Pass pass, ParameterId id) {
    auto operation = engine_->Use(pass, std::vector<ParameterId>{id});
    if (!operation.ok() || pass == Pass::kForward) return operation.status();
    const auto* weight = reinterpret_cast<const float*>(operation->Weight(id));
    auto* gradient = reinterpret_cast<float*>(operation->Gradient(id));
    for (int64_t i = 0; i < kElements; ++i) gradient[i] = 0.5f * weight[i];
    return operation->GradientWritten(id);
  }
  // The step's moments are 0 to 5.
  absl::Status Step() {
    absl::Status status = engine_->BeginMicroBatch();
    for (ParameterId id : {kA, kB, kC}) status.Update(Operator(Pass::kForward, id));
    for (ParameterId id : {kC, kB, kA}) status.Update(Operator(Pass::kBackward, id));
    return status.ok() ? engine_->Step({.learning_rate = 0.1}).status() : status;
  }
  std::vector<float> FirstValues() {
    std::vector<float> values;
    for (ParameterId id : {kA, kB, kC}) {
      const auto all = engine_->ReadParameter(id);
      EXPECT_TRUE(all.ok()) << all.status();
      if (all.ok()) values.push_back(all->front());
    }
    return values;
  }

  // The last requests, which are still in the ring. No copy may be in progress.
  std::vector<shm::Request> Requests() const {
    const shm::ClientSegment& client = *SessionImpl::Of(*session_).segments.client();
    std::vector<shm::Request> requests(std::begin(client.requests), std::end(client.requests));
    std::erase_if(requests, [](const shm::Request& request) { return request.sequence == 0; });
    std::ranges::sort(requests, {}, &shm::Request::sequence);
    return requests;
  }

  // The trainer's moment as the daemon knows it.
  uint64_t MomentOfTheDaemon() {
    return env_.daemon().hub().Inspect(
        [](const core::Engine& engine, const auto&) { return engine.Sessions().at(0).moment; });
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTicketsTest, Copies_CarryTheMomentThatNeedsThem) {
  Connect(20 << 10);  // room for two
  MakeEngine(Placement::kCpu, StatePlacement::kHost);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(Step().ok());

  std::vector<shm::ChunkId> chunks;  // a, b, c, in the order in which the sample gathered them
  std::vector<std::set<uint64_t>> moments = {{0, 5}, {1, 4}, {2, 3}};
  std::vector<uint64_t> begun;
  int ahead = 0;
  for (const shm::Request& request : Requests()) {
    if (request.op == shm::RequestOp::kBeginMoment) begun.push_back(request.argument);
    if (request.op != shm::RequestOp::kTransfer) continue;
    if ((request.flags & shm::kAllocateDestination) == 0) continue;
    EXPECT_NE(request.flags & shm::kMayEvict, 0);
    if (std::ranges::find(chunks, request.destination) == chunks.end()) {
      chunks.push_back(request.destination);
    }
    const auto chunk = std::ranges::find(chunks, request.destination) - chunks.begin();
    ASSERT_LT(chunk, 3);
    EXPECT_TRUE(moments[static_cast<size_t>(chunk)].contains(request.deadline_moment))
        << "chunk " << chunk << " for moment " << request.deadline_moment;
    ahead += request.cause == shm::TransferCause::kPrefetch ? 1 : 0;
  }
  EXPECT_EQ(chunks.size(), 3u);
  EXPECT_GT(ahead, 0);
  ASSERT_EQ(begun.size(), 18u);
  EXPECT_THAT(std::vector(begun.end() - 6, begun.end()), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(MomentOfTheDaemon(), 5u);
}

TEST_F(EngineTicketsTest, EvaluationBetween_DoesNotShiftTheMomentsOfTraining) {
  Connect(20 << 10);
  MakeEngine(Placement::kCpu, StatePlacement::kHost);
  ASSERT_TRUE(Step().ok());
  ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  for (ParameterId id : {kA, kB}) ASSERT_TRUE(Operator(Pass::kForward, id).ok());
  ASSERT_TRUE(engine_->Use(Pass::kEvaluate, std::vector<ParameterId>{kA}).ok());
  ASSERT_TRUE(Operator(Pass::kForward, kC).ok());
  std::vector<uint64_t> begun;
  for (const shm::Request& request : Requests()) {
    if (request.op == shm::RequestOp::kBeginMoment) begun.push_back(request.argument);
  }
  ASSERT_EQ(begun.size(), 10u);
  EXPECT_THAT(std::vector(begun.end() - 4, begun.end()), ElementsAre(0, 1, 2, 2));
}

TEST_F(EngineTicketsTest, ChunksOfTheTrainersOwn_LeaveForTheEngineAndItsBitsStayTheSame) {
  for (const StatePlacement state : {StatePlacement::kHost, StatePlacement::kDevice}) {
    const uint64_t arena_bytes = state == StatePlacement::kHost ? 20 << 10 : 256 << 10;
    std::vector<std::vector<float>> values;
    for (const bool shared : {false, true}) {
      Connect(arena_bytes);
      ChunkId own = kNoChunk;
      if (shared) {
        const auto chunks = session_->Allocate({{"own", ChunkKind::kGeneric, arena_bytes}});
        ASSERT_TRUE(chunks.ok()) << chunks.status();
        own = chunks->front().id;
        ASSERT_TRUE(session_->Use(own).ok());
        ASSERT_EQ(session_->ResidencyOf(own), Residency::kResident);
      }
      MakeEngine(Placement::kAuto, state);
      for (int step = 0; step < 3; ++step) {
        const absl::Status stepped = Step();
        ASSERT_TRUE(stepped.ok()) << stepped;
      }
      values.push_back(FirstValues());
      if (shared) {
        EXPECT_EQ(session_->ResidencyOf(own), Residency::kAbsent);
      }
      engine_.reset();
      session_.reset();
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

}  // namespace
}  // namespace geminid::zero
