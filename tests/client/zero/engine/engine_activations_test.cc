// Activations of the forward pass in places of the arena and in host memory, beside chunks that
// move.
#include <gmock/gmock.h>

#include <span>
#include <vector>

#include "geminid/activation_store.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

class EngineActivationsTest : public EngineTest {
 protected:
  uint64_t items() const { return run_.model.operators.size(); }
};

TEST_F(EngineActivationsTest, InAsManyPlacesAsThereAre_SameBitsAndTheyComeBackWhole) {
  const std::vector<std::vector<float>> dense = TrainDensely(run_);
  for (const uint32_t places : {2u, 3u, 6u}) {
    SCOPED_TRACE(places);
    run_.activation_places = places;
    run_.arena_bytes = kTightArena + places * run_.activation_bytes;
    const SyntheticResult result = MustTrain();
    ExpectSameBits(result.weights, dense);
    ASSERT_EQ(result.statistics.size(), 1u);
    EXPECT_EQ(result.statistics[0].activation_place_bytes, places * run_.activation_bytes);
    EXPECT_EQ(result.statistics[0].activation_bytes,
              static_cast<uint64_t>(run_.steps) * (items() - places) * run_.activation_bytes);
  }
}

TEST_F(EngineActivationsTest, InAPlaceForEach_CrossNoLink) {
  run_.activation_places = static_cast<uint32_t>(items());
  const SyntheticResult result = MustTrain();
  ASSERT_EQ(result.statistics.size(), 1u);
  EXPECT_EQ(result.statistics[0].activation_bytes, 0u);
}

TEST_F(EngineActivationsTest, OfTwoRanksAndSeveralMicroBatches_SameBits) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  run_.activation_places = 2;
  run_.arena_bytes = 1 << 20;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineActivationsTest, ThatARankHasNoRoomFor_AreRefusedOnAllAndCanBeAskedForAgain) {
  run_.world_size = 2;
  run_.prepare = [](Engine* engine, collectives::Communicator*, int rank) -> absl::Status {
    const uint32_t too_many = rank == 1 ? 4000 : 2;
    const ActivationShape shape = {.item_bytes = std::vector<uint64_t>(4000, 4096),
                                   .places = too_many};
    const auto refused = engine->MakeActivationStack(shape);
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
    EXPECT_THAT(refused.status().message(),
                HasSubstr(rank == 1 ? "4000 places of 4.0 KiB" : "rank 1 has no memory"));
    EXPECT_EQ(engine->GetStatistics()->activation_place_bytes, 0u);
    const auto first = engine->MakeActivationStack({.item_bytes = {1, 1, 1}, .places = 2});
    EXPECT_TRUE(first.ok()) << first.status();
    const auto second = engine->MakeActivationStack({.item_bytes = {1, 1, 1}, .places = 2});
    EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
    // The first stack is unchanged.
    EXPECT_EQ(engine->GetStatistics()->activation_place_bytes, 2u);
    EXPECT_TRUE(first.ok() && (*first)->Begin().ok() && (*first)->Push().ok());
    return engine->Initialize([](ParameterId, std::span<float>) { return absl::OkStatus(); });
  };
  MustTrain();
}

TEST_F(EngineActivationsTest, StoreOfThem_IsMadeOnAllRanksOrNone_AndTrainingHasTheSameBits) {
  run_.world_size = 2;
  run_.prepare = [](Engine* engine, collectives::Communicator*, int rank) -> absl::Status {
    const auto refused =
        MakeActivationStore(engine, {.place_bytes = 4096, .places = rank == 1 ? 1u : 2u});
    EXPECT_EQ(refused.status().code(), rank == 1 ? absl::StatusCode::kInvalidArgument
                                                 : absl::StatusCode::kResourceExhausted);
    const auto too_large = MakeActivationStore(engine, {.place_bytes = ~uint64_t{0}});
    EXPECT_TRUE(absl::IsResourceExhausted(too_large.status())) << too_large.status();
    const auto made = MakeActivationStore(engine, {.place_bytes = 4096, .places = 2});
    EXPECT_TRUE(made.ok()) << made.status();
    const auto second = engine->MakeActivationStack({.item_bytes = {1, 1, 1}, .places = 2});
    EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
    if (!made.ok()) return made.status();
    const uint64_t before = engine->GetStatistics()->host_bytes;
    const std::vector<std::byte> bytes(10000, std::byte{1});
    EXPECT_TRUE((*made)->Save(bytes.data(), bytes.size(), {}).ok());
    const Statistics statistics = *engine->GetStatistics();
    EXPECT_EQ(statistics.activation_place_bytes, 2u * 4096);
    EXPECT_EQ(statistics.host_bytes, before + (*made)->host_bytes());
    return engine->Initialize([](ParameterId, std::span<float>) { return absl::OkStatus(); });
  };
  const std::vector<std::vector<float>> with = MustTrain().weights;
  run_.prepare = [](Engine* engine, collectives::Communicator*, int) {
    return engine->Initialize([](ParameterId, std::span<float>) { return absl::OkStatus(); });
  };
  ExpectSameBits(with, MustTrain().weights);
}

}  // namespace
}  // namespace geminid::zero
