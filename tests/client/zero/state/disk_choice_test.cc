#include "client/zero/state/disk_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class DiskChoiceTest : public ::testing::Test {
 protected:
  // Each chunk has one tensor.
  explicit DiskChoiceTest(size_t chunks = 6) { LayOut(std::vector<TensorShape>(chunks, kTensor)); }

  void LayOut(const std::vector<TensorShape>& tensors) {
    layout_ = *MakeLayout(tensors, {.world_size = 2, .chunk_elements = kTensor.elements});
    ASSERT_EQ(layout_.chunks.size(), tensors.size());
  }
  uint64_t HostBytes(size_t on_disk) const {
    StateStoreOptions options = options_;
    options.on_disk = LastChunks(layout_, options, on_disk);
    return HostBytesOf(layout_, options);
  }
  size_t Chosen(uint64_t room_bytes) const {
    return ChooseOnDisk(layout_, options_, room_bytes).chunks;
  }

  static constexpr TensorShape kTensor = {.elements = 256 << 10};
  Layout layout_;
  StateStoreOptions options_{.disk = DiskStateOptions{}};
};

TEST_F(DiskChoiceTest, WhereAllStateFits_NothingIsOnDisk) {
  EXPECT_EQ(Chosen(2 * HostBytes(0)), 0u);
}

// Buffers and activations need room, no matter whether state is on disk.
TEST_F(DiskChoiceTest, WhereAllStateFits_ItLeavesAsMuchRoomAsWhereSomeIsOnDisk) {
  const uint64_t least = (HostBytes(0) * kRoomLeft + kRoomLeft - 2) / (kRoomLeft - 1);
  EXPECT_EQ(Chosen(least), 0u);
  EXPECT_EQ(Chosen(least - kRoomLeft), 1u);
  EXPECT_GE(Chosen(HostBytes(0)), 1u);
}

TEST_F(DiskChoiceTest, WhereItDoesNot_TheFewestGoThatLeaveRoomForTheRest) {
  for (uint64_t room = 2 * kMiB; room < HostBytes(0); room += kMiB / 2) {
    SCOPED_TRACE(room);
    const uint64_t usable = room - room / kRoomLeft;
    const size_t chosen = Chosen(room);
    EXPECT_TRUE(HostBytes(chosen) <= usable || chosen == layout_.chunks.size());
    EXPECT_TRUE(chosen == 0 || HostBytes(chosen - 1) > usable);
  }
}

TEST_F(DiskChoiceTest, WhereNothingFits_AllGoes) {
  const DiskChoice choice = ChooseOnDisk(layout_, options_, 0);
  EXPECT_EQ(choice.chunks, layout_.chunks.size());
  EXPECT_EQ(choice.trained_chunks, layout_.chunks.size());
  EXPECT_EQ(choice.host_bytes, HostBytes(layout_.chunks.size()));
  EXPECT_EQ(choice.undivided_bytes, HostBytes(0));
}

TEST_F(DiskChoiceTest, LastChunks_AreThoseOfTheLayoutsEndThatAreTrained) {
  std::vector<TensorShape> tensors(4, kTensor);
  tensors[2].trainable = false;
  LayOut(tensors);
  EXPECT_THAT(LastChunks(layout_, options_, 0), ElementsAre(false, false, false, false));
  EXPECT_THAT(LastChunks(layout_, options_, 2), ElementsAre(false, true, false, true));
  EXPECT_THAT(LastChunks(layout_, options_, 9), ElementsAre(true, true, false, true));
}

// If the optimizer has no arrays, fp32 weights have no other state.
TEST_F(DiskChoiceTest, ChunksWithoutState_StayWhereTheyAre) {
  std::vector<TensorShape> tensors(2, kTensor);
  tensors[1].type = DataType::kFloat32;
  LayOut(tensors);
  options_.state_arrays = 0;
  EXPECT_THAT(LastChunks(layout_, options_, 2), ElementsAre(true, false));
}

TEST_F(DiskChoiceTest, WhyOnDisk_HasTheNumbers) {
  const std::string some = WhyOnDisk({.chunks = 2,
                                      .needed_chunks = 2,
                                      .trained_chunks = 6,
                                      .room_bytes = 16 * kMiB,
                                      .undivided_bytes = 18 * kMiB,
                                      .host_bytes = 14 * kMiB});
  EXPECT_EQ(some,
            "2 of 6 chunks on disk: state would take 18.0 MiB of host memory, where there is room "
            "for 16.0 MiB, 1.0 MiB of it for buffers; so it takes 14.0 MiB");
  const std::string none =
      WhyOnDisk({.trained_chunks = 6, .room_bytes = 20 * kMiB, .undivided_bytes = 12 * kMiB});
  EXPECT_THAT(none, AllOf(HasSubstr("none on disk"), HasSubstr("room for 20.0 MiB")));
}

// The rank's own numbers would not explain the choice.
TEST_F(DiskChoiceTest, WhyOnDisk_OfARankThatNeedsLess_NamesTheOneThatNeedsMost) {
  const uint64_t plenty = 2 * HostBytes(0);
  const DiskChoice own = ChooseOnDisk(layout_, options_, plenty);
  const DiskChoice agreed = WithOnDisk(layout_, options_, own, 2);
  EXPECT_EQ(agreed.chunks, 2u);
  EXPECT_EQ(agreed.host_bytes, HostBytes(2));
  EXPECT_THAT(WhyOnDisk(agreed),
              AllOf(HasSubstr("2 of 6 chunks on disk, as many as the rank with the least host "
                              "memory needs there; this one needs none"),
                    HasSubstr("state would take")));
  const DiskChoice needs_two = ChooseOnDisk(layout_, options_, HostBytes(0));
  EXPECT_THAT(WhyOnDisk(WithOnDisk(layout_, options_, needs_two, 4)),
              HasSubstr("4 of 6 chunks on disk, as many as the rank with the least host memory "
                        "needs there; this one needs 2"));
}

}  // namespace
}  // namespace geminid::zero
