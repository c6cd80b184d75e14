// Three small parameters and one rank. The test calls its engine as a trainer would.
#ifndef GEMINID_TESTS_CLIENT_ZERO_ENGINE_ENGINE_CALLS_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_ZERO_ENGINE_ENGINE_CALLS_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {

inline constexpr int64_t kElements = 2048;
inline constexpr ParameterId kA{0}, kB{1}, kC{2};

inline std::vector<Parameter> ThreeParameters() {
  return {{.name = "a", .shape = {kElements}},
          {.name = "b", .shape = {kElements}},
          {.name = "c", .shape = {kElements}}};
}

inline Options SmallChunks() {
  Options options;
  options.data_type = DataType::kFloat32;
  options.clip_norm = 0;
  options.chunk_elements = kElements;
  options.state_placement = StatePlacement::kHost;
  options.timeout = absl::Seconds(30);
  return options;
}

inline std::vector<float> Ones(float value = 1) { return std::vector<float>(kElements, value); }

// One rank with its session.
struct Rank {
  std::unique_ptr<collectives::Communicator> communicator;
  std::unique_ptr<Session> session;
  std::unique_ptr<Engine> engine;
};

class EngineCallsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  static ConnectOptions Connection(const std::string& socket, uint64_t arena_bytes) {
    ConnectOptions connect;
    connect.socket = socket;
    connect.device_memory_bytes = arena_bytes;
    connect.timeout = absl::Seconds(30);
    return connect;
  }

  void Make(std::vector<Parameter> parameters, const Options& options,
            uint64_t arena_bytes = 256 << 10) {
    rank_.engine.reset();  // before the session
    rank_ = {};
    rank_.communicator = collectives::MakeSelfCommunicator();
    auto session = Session::Connect(Connection(env_.socket(), arena_bytes));
    ASSERT_TRUE(session.ok()) << session.status();
    rank_.session = *std::move(session);
    MakeEngine(std::move(parameters), options);
  }

  void MakeEngine(std::vector<Parameter> parameters, const Options& options) {
    auto engine =
        Engine::Create(rank_.session.get(), rank_.communicator.get(), parameters, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    rank_.engine = *std::move(engine);
    ASSERT_TRUE(engine_()
                    .Initialize([](ParameterId id, std::span<float> values) {
                      std::ranges::fill(values, 1 + static_cast<float>(id));
                      return absl::OkStatus();
                    })
                    .ok());
  }

  Engine& engine_() { return *rank_.engine; }

  static absl::Status Forward(Engine& engine, std::vector<ParameterId> ids) {
    return engine.Use(Pass::kForward, ids).status();
  }
  static absl::Status Backward(Engine& engine, ParameterId id, float value = 1) {
    auto operation = engine.Use(Pass::kBackward, std::vector<ParameterId>{id});
    if (!operation.ok()) return operation.status();
    float* gradient = reinterpret_cast<float*>(operation->Gradient(id));
    const bool accumulates = operation->GradientAccumulates(id);
    for (int64_t i = 0; i < kElements; ++i) {
      gradient[i] = accumulates ? gradient[i] + value : value;
    }
    if (absl::Status status = operation->GradientWritten(id); !status.ok()) return status;
    return operation->Finish();
  }
  // A forward and a backward pass of all three parameters.
  static absl::Status MicroBatch(Engine& engine, float value = 1) {
    absl::Status status = engine.BeginMicroBatch();
    for (ParameterId id : {kA, kB, kC}) {
      if (status.ok()) status = Forward(engine, {id});
    }
    for (ParameterId id : {kC, kB, kA}) {
      if (status.ok()) status = Backward(engine, id, value);
    }
    return status;
  }
  // A micro-batch of one part: only its parameters are trained, after others were evaluated.
  static absl::Status PartOfMicroBatch(Engine& engine, const std::vector<ParameterId>& part,
                                       float value) {
    absl::Status status = engine.BeginMicroBatch();
    for (ParameterId id : {kA, kB, kC}) {
      if (status.ok()) status = engine.Use(Pass::kEvaluate, std::vector<ParameterId>{id}).status();
    }
    for (ParameterId id : part) {
      if (status.ok()) status = Backward(engine, id, value);
    }
    return status;
  }
  std::vector<std::vector<float>> AllValues() {
    std::vector<std::vector<float>> values;
    for (ParameterId id : {kA, kB, kC}) {
      const auto read = engine_().ReadParameter(id);
      EXPECT_TRUE(read.ok()) << read.status();
      values.push_back(read.value_or(std::vector<float>()));
    }
    return values;
  }
  void MustStep(float value = 1) {
    ASSERT_TRUE(MicroBatch(engine_(), value).ok());
    const auto step = engine_().Step({.learning_rate = 0.1});
    ASSERT_TRUE(step.ok()) << step.status();
  }
  float First(ParameterId id) {
    const auto values = engine_().ReadParameter(id);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->front() : NAN;
  }

  geminid::testing::DaemonEnv env_;
  Rank rank_;
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_ENGINE_ENGINE_CALLS_FIXTURE_H_
