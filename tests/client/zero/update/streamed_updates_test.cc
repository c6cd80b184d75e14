#include "client/zero/update/streamed_updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/zero/core/extent.h"
#include "client/zero/update/updater.h"
#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kElements = 16384;  // of each chunk, which has one granule
constexpr uint32_t kChunks = 4;

// One rank's store and updater, without an engine.
class StreamedUpdatesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  void Connect(uint64_t arena_bytes) {
    streamed_ = nullptr;
    updater_.reset();
    store_.reset();
    session_.reset();
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = arena_bytes;
    session_ = *Session::Connect(connect);
  }

  // `streamed` is by granule. `order_` gets the arguments of before_update.
  void Make(std::vector<bool> streamed, const std::vector<uint32_t>& moved) {
    layout_ = *MakeLayout(std::vector<TensorShape>(kChunks, {kElements, true}),
                          {.chunk_elements = kElements});
    ASSERT_EQ(layout_.granules, kChunks);
    store_ = *StateStore::Create(session_.get(), layout_, {.streamed = std::move(streamed)});
    std::vector<Parameter> parameters;
    for (uint32_t i = 0; i < kChunks; ++i) {
      parameters.push_back({.name = std::to_string(i), .shape = {kElements}});
    }
    optimizer_.emplace(layout_, parameters, 0, Options{});
    FillState();
    std::unique_ptr<StreamedUpdates> streams;
    if (store_->any_streamed()) {
      streams = *StreamedUpdates::Create(session_.get(), layout_, store_.get(), *optimizer_,
                                         absl::Seconds(30));
      streamed_ = streams.get();
    }
    if (!moved.empty()) {
      ASSERT_TRUE(store_->MoveToDevice(moved).ok());
    }
    std::unique_ptr<kernels::ThreadPool> pool;
    ASSERT_EQ(kernels::ThreadPool::Create({.threads = 2}, &pool), kernels::Status::kOk);
    updater_ = *Updater::Create(
        layout_, *optimizer_, store_.get(), std::move(pool), [](const absl::Status&) {},
        [this](uint32_t granule, uint64_t) {
          order_.push_back(granule);
          EXPECT_EQ(store_->WeightChunk(granule), before_[granule]) << "flipped already";
        },
        std::move(streams));
  }

  void FillState() {
    for (uint32_t g = 0; g < kChunks; ++g) {
      auto* const weight = reinterpret_cast<uint16_t*>(store_->Current(g).weight);
      auto* const gradient = reinterpret_cast<uint16_t*>(store_->Gradient(g));
      for (uint64_t i = 0; i < kElements; ++i) {
        weight[i] = static_cast<uint16_t>(0x3f00 + (i * 7 + g) % 200);     // bf16 about 1
        gradient[i] = static_cast<uint16_t>(0xbd00 + (i * 13 + g) % 200);  // a little below 0
      }
    }
  }

  void Step(uint64_t epoch) {
    ASSERT_TRUE(optimizer_
                    ->Prepare({.step = epoch, .learning_rate = 0.1},
                              std::vector<TensorRates>(kChunks), *store_, nullptr)
                    .ok());
    for (uint32_t g = 0; g < kChunks; ++g) before_[g] = store_->WeightChunk(g);
    updater_->Start(epoch, {0, 1, 2, 3});
    const absl::Status done = updater_->WaitIdle(absl::Seconds(30));
    ASSERT_TRUE(done.ok()) << done;
  }

  std::vector<std::byte> State() const {
    std::vector<std::byte> state;
    const auto add = [&](const void* array, uint64_t bytes) {
      const auto* const begin = static_cast<const std::byte*>(array);
      state.insert(state.end(), begin, begin + bytes);
    };
    for (uint32_t g = 0; g < kChunks; ++g) {
      const StateStore::View view = store_->Current(g);
      add(view.weight, 2 * kElements);
      add(view.remainder, 2 * kElements);
      for (const std::byte* array : view.arrays) add(array, 4 * kElements);
    }
    return state;
  }

  std::vector<std::byte> StateAfterTwoSteps(uint64_t arena_bytes, std::vector<bool> streamed,
                                            const std::vector<uint32_t>& moved) {
    Connect(arena_bytes);
    Make(std::move(streamed), moved);
    Step(1);
    Step(2);
    return State();
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
  Layout layout_;
  std::unique_ptr<StateStore> store_;
  std::optional<GranuleOptimizer> optimizer_;
  std::vector<uint32_t> order_;
  std::array<ChunkId, kChunks> before_ = {};  // the places of weights before the step
  StreamedUpdates* streamed_ = nullptr;       // owned by the updater
  std::unique_ptr<Updater> updater_;
};

TEST_F(StreamedUpdatesTest, StateOnBothSidesAndBetween_GetsTheSameBitsInOneStep) {
  constexpr uint64_t kArena = 4 << 20;
  const std::vector<std::byte> host = StateAfterTwoSteps(kArena, {}, {});
  EXPECT_EQ(StateAfterTwoSteps(kArena, {true, true, true, true}, {}), host);
  EXPECT_EQ(StateAfterTwoSteps(kArena, {false, true, false, true}, {}), host);
  EXPECT_EQ(StateAfterTwoSteps(kArena, {true, false, true, false}, {}), host);
  EXPECT_EQ(StateAfterTwoSteps(kArena, {true, true, false, true}, {0}), host);
  EXPECT_FALSE(store_->granule_streamed(0)) << "it is on the device";
}

TEST_F(StreamedUpdatesTest, SlicesOfAGranule_GetTheBitsOfTheWhole) {
  const std::vector<std::byte> host = StateAfterTwoSteps(1 << 20, {}, {});
  for (const uint64_t arena : {uint64_t{128} << 10, uint64_t{1} << 20, uint64_t{16} << 20}) {
    SCOPED_TRACE(arena);
    EXPECT_EQ(StateAfterTwoSteps(arena, {true, true, true, true}, {}), host);
    EXPECT_EQ(streamed_->slice_elements() < kElements, arena < uint64_t{16} << 20);
  }
}

TEST_F(StreamedUpdatesTest, Places_AreInTheLedgerUntilTheyAreFreed) {
  Connect(1 << 20);
  constexpr auto kGeneric = static_cast<size_t>(ChunkKind::kGeneric);
  Make({true, true, true, true}, {});
  const uint64_t bytes = 3 * RoundUpToExtent(streamed_->slice_elements() * (2 + 2 + 4 + 4 + 2));
  EXPECT_EQ(session_->GetMemoryUse()->device_bytes_by_kind[kGeneric], bytes);
  EXPECT_EQ(store_->device_bytes(), bytes);
  updater_.reset();
  ASSERT_TRUE(store_->Free().ok());
  EXPECT_EQ(session_->GetMemoryUse()->device_bytes_by_kind[kGeneric], 0u);
}

// A snapshot must read a granule before its next version is made.
TEST_F(StreamedUpdatesTest, EachGranule_IsAnnouncedOnceBeforeItsStateComes) {
  StateAfterTwoSteps(4 << 20, {true, false, true, true}, {});
  std::vector<uint32_t> first(order_.begin(), order_.begin() + kChunks);
  std::ranges::sort(first);
  EXPECT_EQ(first, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(order_.size(), 2u * kChunks);
}

TEST_F(StreamedUpdatesTest, GranuleThatIsNotFinished_HasItsOldStateAndTheNewOneIsNowhereYet) {
  Connect(4 << 20);
  Make({true, true, true, true}, {});
  const std::vector<std::byte> before = State();
  ASSERT_TRUE(optimizer_
                  ->Prepare({.step = 1, .learning_rate = 0.1}, std::vector<TensorRates>(kChunks),
                            *store_, nullptr)
                  .ok());
  std::unique_ptr<kernels::ThreadPool> pool;
  ASSERT_EQ(kernels::ThreadPool::Create({.threads = 1}, &pool), kernels::Status::kOk);
  streamed_->Add(0);
  ASSERT_TRUE(streamed_->FinishFirst(/*epoch=*/1, pool.get()).ok());
  EXPECT_EQ(State(), before);
  EXPECT_NE(std::memcmp(store_->Spare(0).weight, store_->Current(0).weight, 2 * kElements), 0);
  store_->Flip(0, 1);
  EXPECT_NE(State(), before);
}

}  // namespace
}  // namespace geminid::zero
