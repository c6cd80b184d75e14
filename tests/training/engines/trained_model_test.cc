#include "training/engines/trained_model.h"

#include <gtest/gtest.h>

#include <memory>

#include "client/src/session_internal.h"
#include "tests/collectives/world.h"
#include "tests/daemon_env/daemon_env.h"
#include "training/models/model_config.h"
#include "training/settings/parallel.h"

namespace geminid::trainer {
namespace {

constexpr int kStages = 2;

// An interleaved pipeline refuses a number of micro-batches that is no multiple of its stages. The
// check comes after the engine exists, so it stands for the death of another rank at that moment.
TrainOptions RefusedAfterItsEngine() {
  TrainOptions options;
  options.model = *FindPreset("llama-tiny");
  options.model.layers = 8;
  options.batch = 1;
  options.timeout = absl::Seconds(60);
  options.zero.accumulate = kStages + 1;
  options.parallel = {
      .pipeline = kStages, .schedule = collectives::PipelineKind::kInterleaved, .chunks = 2};
  return options;
}

TEST(TrainedModel, ThatFailsWhenItsEngineIsThere_LeavesTheStateToASuccessor) {
  geminid::testing::DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const TrainOptions options = RefusedAfterItsEngine();
  const auto mesh = MakeMesh(options.parallel, kStages);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  collectives::Communicators ranks = collectives::LocalBackend().connect(kStages, options.timeout);
  collectives::ForEachRank(ranks, [&](collectives::Communicator& world) {
    ConnectOptions connect;
    connect.socket = env.socket();
    connect.rank = world.Rank();
    connect.world_size = kStages;
    connect.device_memory_bytes = 64 << 20;
    connect.run = "run";
    connect.keep_on_death = true;
    const auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    const uint64_t before = *(*session)->HostBytes();
    const absl::Status refused = TrainedModel::Create({.options = options,
                                                       .mesh = *mesh,
                                                       .world = world,
                                                       .session = **session,
                                                       .resumes = true})
                                     .status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_TRUE(IsLeft(**session));
    EXPECT_GT(*(*session)->HostBytes(), before) << "the state went with its engine";
  });
}

}  // namespace
}  // namespace geminid::trainer
