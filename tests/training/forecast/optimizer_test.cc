#include "training/forecast/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "client/zero/options/optimizer_options.h"
#include "client/zero/update/granule_optimizer.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/problem.h"
#include "training/forecast/trainer_layout.h"

namespace geminid::forecast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The optimizers of the engine, with their hyperparameters.
const std::vector<zero::Optimizer>& EngineOptimizers() {
  static const auto* const kAll = new std::vector<zero::Optimizer>{
      zero::AdamWOptions{}, zero::AdamOptions{},    zero::LambOptions{}, zero::LarsOptions{},
      zero::SgdOptions{},   zero::AdagradOptions{}, zero::LionOptions{}, zero::AdafactorOptions{},
      zero::CameOptions{},  zero::MuonOptions{}};
  return *kAll;
}

struct StateBytes {
  std::uint64_t moments = 0;  // over all chunks of a rank
  std::uint64_t shard = 0;    // parameters
};

Model SmallModel() { return *MakeMember(*FindFamily("llama-like"), 3, 256, 0); }
constexpr int kRanks = 2;

StateBytes Predicted(const Optimizer& optimizer) {
  Job job;
  job.hardware = *FindHardware("a100-40gb");
  job.ranks = kRanks;
  job.batch = {.sequences = 1, .sequence_length = 128};
  job.optimizer = optimizer;
  const absl::StatusOr<planner::TierProblem> problem = MakeProblem(SmallModel(), job);
  EXPECT_TRUE(problem.ok()) << problem.status();
  StateBytes bytes;
  for (const planner::OptimizerItem& item : problem->optimizer) {
    bytes.moments += item.moment_bytes;
    bytes.shard += item.parameters;
    EXPECT_EQ(item.weight_bytes + item.remainder_bytes, 4 * item.parameters);
  }
  return bytes;
}

// The bytes that the engine's state store allocates: an array per shard for each of state_arrays,
// and the numbers per tensor in two versions.
StateBytes Allocated(const zero::Optimizer& optimizer) {
  std::vector<zero::Parameter> parameters;
  for (const Tensor& tensor : Tensors(SmallModel())) {
    zero::Parameter& parameter = parameters.emplace_back();
    parameter.orthogonal = IsPartOfLayer(tensor.used_by) && tensor.rows > 1 && tensor.columns > 1;
    parameter.shape = {static_cast<std::int64_t>(tensor.rows),
                       static_cast<std::int64_t>(tensor.columns)};
  }
  const absl::StatusOr<zero::Layout> layout =
      TrainerLayout(SmallModel(), *FindOptimizer(std::string(zero::Name(optimizer))), kRanks);
  EXPECT_TRUE(layout.ok()) << layout.status();
  zero::Options options;
  options.optimizer = optimizer;
  const zero::GranuleOptimizer engine(*layout, parameters, 0, options);
  EXPECT_TRUE(engine.status().ok()) << engine.status();
  StateBytes bytes;
  for (const zero::ChunkShape& chunk : layout->chunks) {
    const std::uint64_t shard = chunk.granules * chunk.granule_elements;
    const std::size_t arrays = chunk.whole ? engine.matrix_state_arrays() : engine.state_arrays();
    bytes.shard += shard;
    bytes.moments += shard * arrays * sizeof(float);
  }
  bytes.moments += 2 * engine.tensor_state_bytes();
  return bytes;
}

TEST(Optimizers, NamesAndStateOfAllTen_AreThoseOfTheEngine) {
  ASSERT_EQ(EngineOptimizers().size(), std::size(kernels::kAllOptimizerKinds));
  for (const zero::Optimizer& engine : EngineOptimizers()) {
    const std::string name(zero::Name(engine));
    const absl::StatusOr<Optimizer> known = FindOptimizer(name);
    ASSERT_TRUE(known.ok()) << known.status();
    EXPECT_EQ(known->name(), name);
    const StateBytes predicted = Predicted(*known);
    const StateBytes allocated = Allocated(engine);
    EXPECT_EQ(predicted.shard, allocated.shard) << name;
    EXPECT_EQ(predicted.moments, allocated.moments) << name;
  }
}

TEST(Optimizers, MomentumOfSgdAndAdafactor_IsOneArrayMore) {
  zero::SgdOptions sgd;
  sgd.momentum = 0.9;
  EXPECT_EQ(Predicted(*FindOptimizer("sgd", true)).moments, Allocated(sgd).moments);
  zero::AdafactorOptions adafactor;
  adafactor.beta1 = 0.9;
  EXPECT_EQ(Predicted(*FindOptimizer("adafactor", true)).moments, Allocated(adafactor).moments);
  EXPECT_THAT(std::string(FindOptimizer("adamw", true).status().message()),
              HasSubstr("only sgd and adafactor"));
}

TEST(Optimizers, StatePerParameter_IsWhatThePapersSay) {
  const auto bytes = [](const char* name) {
    return FindOptimizer(name)->moment_bytes_per_parameter();
  };
  EXPECT_EQ(bytes("adamw"), 8u);
  EXPECT_EQ(bytes("lion"), 4u);
  EXPECT_EQ(bytes("came"), 4u);
  EXPECT_EQ(bytes("adafactor"), 0u);
  EXPECT_EQ(bytes("sgd"), 0u);
}

TEST(Optimizers, StateInBFloat16_IsHalfOfItAndSaid) {
  Optimizer optimizer = *FindOptimizer("adamw");
  EXPECT_EQ(optimizer.words(), "adamw");
  optimizer.small_state = true;
  EXPECT_EQ(optimizer.moment_bytes_per_parameter(), 4u);  // 8 with the master
  EXPECT_EQ(optimizer.words(), "adamw with bf16 state");
  EXPECT_EQ(optimizer.name(), "adamw");
}

TEST(FindOptimizer, UnknownName_ListsAll) {
  EXPECT_THAT(std::string(FindOptimizer("sgd-momentum").status().message()),
              AllOf(HasSubstr("adafactor"), HasSubstr("came"), HasSubstr("sgd")));
}

}  // namespace
}  // namespace geminid::forecast
