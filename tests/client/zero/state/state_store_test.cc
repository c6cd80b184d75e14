#include "client/zero/state/state_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "client/src/session_internal.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

class StateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 4 << 20;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    const std::vector<TensorShape> shapes(3, {16384, true});
    absl::StatusOr<Layout> layout = MakeLayout(shapes, {.chunk_elements = 16384});
    ASSERT_TRUE(layout.ok());
    layout_ = *std::move(layout);
    ASSERT_EQ(layout_.chunks.size(), 3u);
  }

  std::unique_ptr<StateStore> Make(const StateStoreOptions& options) {
    absl::StatusOr<std::unique_ptr<StateStore>> store =
        StateStore::Create(session_.get(), layout_, options);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  bool InArena(const std::byte* address) const {
    return address >= session_->arena() && address < session_->arena() + session_->arena_bytes();
  }
  shm::ChunkVersion Version(uint32_t group) const {
    return shm::ChunkVersion::Decode(CommitSegmentOf(*session_)->versions[group].load());
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
  Layout layout_;
};

TEST_F(StateStoreTest, Flip_MakesTheSpareTheGranulesOwnAndSaysSoInTheCommitSegment) {
  const std::unique_ptr<StateStore> store = Make({});
  const std::byte* const old = store->Current(1).weight;
  const std::byte* const spare = store->Spare(1).weight;
  store->Flip(1, 7);
  EXPECT_EQ(store->Current(1).weight, spare);
  EXPECT_EQ(store->Spare(0).weight, old);
  EXPECT_EQ(Version(1).epoch, 7u);
  EXPECT_EQ(Version(1).extent, layout_.granules);
}

TEST_F(StateStoreTest, TensorState_HasTwoVersionsOfWhichTheWordNamesOne) {
  const std::unique_ptr<StateStore> store = Make({.tensor_state_bytes = 100});
  EXPECT_EQ(CommitSegmentOf(*session_)->header.groups, layout_.granules + 1);
  std::byte* const first = store->TensorState();
  std::byte* const second = store->SpareTensorState();
  ASSERT_NE(first, second);
  EXPECT_TRUE(std::all_of(first, first + 100, [](std::byte b) { return b == std::byte{0}; }));
  store->FlipTensorState(3);
  EXPECT_EQ(store->TensorState(), second);
  EXPECT_EQ(Version(layout_.granules).epoch, 3u);
  EXPECT_EQ(Version(layout_.granules).extent, 1u);
  store->FlipTensorState(4);
  EXPECT_EQ(store->TensorState(), first);
  EXPECT_EQ(Version(layout_.granules).extent, 0u);
}

TEST_F(StateStoreTest, WithoutTensorState_HasNoneAndNoWordForIt) {
  const std::unique_ptr<StateStore> store = Make({.state_arrays = 0});
  EXPECT_EQ(store->TensorState(), nullptr);
  EXPECT_EQ(CommitSegmentOf(*session_)->header.groups, layout_.granules);
  EXPECT_EQ(store->Current(0).arrays[0], nullptr);
  EXPECT_EQ(store->model_state_bytes(), 3u * 16384 * 4);
}

TEST_F(StateStoreTest, StateInBFloat16_TakesHalfTheBytesInEveryExtent) {
  for (const bool on_device : {false, true}) {
    const std::unique_ptr<StateStore> store =
        Make({.on_device = on_device, .state_type = DataType::kBFloat16});
    EXPECT_EQ(store->model_state_bytes(), 3u * 16384 * 8);
    for (const StateStore::View& view : {store->Current(0), store->Spare(0)}) {
      EXPECT_EQ(view.state_type, DataType::kBFloat16);
      EXPECT_NE(view.arrays[1], nullptr);
    }
    EXPECT_EQ(store->Free(), absl::OkStatus());
  }
}

// A granule's next version never goes to an extent without room for it.
TEST_F(StateStoreTest, GranulesOfTwoTypes_FlipAmongExtentsOfTheirOwn) {
  const std::vector<TensorShape> shapes = {{16384, true, DataType::kBFloat16},
                                           {16384, true, DataType::kFloat32},
                                           {4096, false, DataType::kFloat32}};
  absl::StatusOr<Layout> layout = MakeLayout(shapes, {.chunk_elements = 16384});
  ASSERT_TRUE(layout.ok());
  layout_ = *std::move(layout);
  ASSERT_EQ(layout_.chunks.size(), 3u);
  for (const bool on_device : {false, true}) {
    const std::unique_ptr<StateStore> store = Make({.on_device = on_device});
    for (uint64_t epoch = 1; epoch < 5; ++epoch) {
      for (uint32_t granule = 0; granule < 2; ++granule) {
        const DataType type = granule == 0 ? DataType::kBFloat16 : DataType::kFloat32;
        EXPECT_EQ(store->Current(granule).type, type);
        EXPECT_EQ(store->Spare(granule).type, type);
        EXPECT_EQ(store->Current(granule).remainder == nullptr, granule == 1);
        EXPECT_EQ(store->GradientType(granule), type);
        EXPECT_NE(store->Current(granule).weight, store->Spare(granule).weight);
        store->Flip(granule, epoch);
      }
    }
    EXPECT_NE(store->Spare(0).weight, store->Spare(1).weight);
    EXPECT_EQ(store->Current(2).arrays[0], nullptr);
    EXPECT_EQ(store->Free(), absl::OkStatus());
  }
}

TEST_F(StateStoreTest, ChunkMovedToTheDevice_KeepsItsBytesAndFlipsAmongDeviceExtents) {
  const std::unique_ptr<StateStore> store = Make({});
  store->Flip(1, 1);  // so that the extents are not in the order of granules
  std::fill_n(store->Current(1).arrays[1], 4 * layout_.chunks[1].granule_elements, std::byte{7});
  std::fill_n(store->Gradient(1), 2 * layout_.chunks[1].granule_elements, std::byte{9});
  const uint64_t expected = store->device_bytes_of(1) + store->device_spare_bytes();
  const std::vector<uint32_t> moved = {1};
  ASSERT_TRUE(store->MoveToDevice(moved).ok());
  EXPECT_EQ(store->device_bytes(), expected);
  EXPECT_TRUE(store->on_device(1));
  EXPECT_FALSE(store->on_device(0));
  EXPECT_EQ(store->Current(1).arrays[1][4 * layout_.chunks[1].granule_elements - 1], std::byte{7});
  EXPECT_EQ(store->Gradient(1)[0], std::byte{9});
  for (uint64_t epoch = 2; epoch < 6; ++epoch) {
    for (uint32_t granule = 0; granule < 3; ++granule) {
      EXPECT_EQ(InArena(store->Current(granule).weight), granule == 1);
      EXPECT_EQ(InArena(store->Spare(granule).weight), granule == 1);
      EXPECT_NE(store->Spare(granule).weight, store->Current(granule).weight);
      store->Flip(granule, epoch);
    }
  }
  EXPECT_TRUE(InArena(store->Gradient(1)));
  EXPECT_FALSE(InArena(store->Gradient(2)));
}

TEST_F(StateStoreTest, PlaceForScales_IsThereWhileStateLivesOnTheDeviceAndComesBackWithIt) {
  constexpr uint64_t kScaleBytes = 5000;
  for (const bool on_device : {false, true}) {
    const std::unique_ptr<StateStore> store =
        Make({.on_device = on_device, .device_scale_bytes = kScaleBytes});
    EXPECT_EQ(store->DeviceScales() != nullptr, on_device);
    const uint64_t expected = store->device_bytes_of(1) + store->device_spare_bytes();
    if (!on_device) {
      ASSERT_TRUE(store->MoveToDevice(std::vector<uint32_t>{1}).ok());
      EXPECT_EQ(store->device_bytes(), expected);
    }
    float* const scales = store->DeviceScales();
    ASSERT_TRUE(InArena(reinterpret_cast<std::byte*>(scales)));
    EXPECT_TRUE(InArena(reinterpret_cast<std::byte*>(scales) + kScaleBytes - 1));
    ASSERT_EQ(store->PrepareToLeave(), absl::OkStatus());
    ASSERT_EQ(store->LeaveDevice(), absl::OkStatus());
    ASSERT_EQ(store->ReturnToDevice(), absl::OkStatus());
    EXPECT_EQ(store->DeviceScales(), scales);
    std::fill_n(scales, kScaleBytes / sizeof(float), 1.0F);
    EXPECT_EQ(store->Free(), absl::OkStatus());
  }
}

// From then on the home has the older copy, which must not count as the newer one.
TEST_F(StateStoreTest, ChunkMovedToTheDevice_CannotBeDroppedForItsHome) {
  std::unique_ptr<StateStore> store = Make({});
  const std::vector<uint32_t> moved = {1};
  ASSERT_TRUE(store->MoveToDevice(moved).ok());
  const ChunkId weight = store->WeightChunk(1);
  store.reset();  // and its leases
  const absl::Status status = session_->Drop(weight).Wait();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message().find("leased"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace geminid::zero
