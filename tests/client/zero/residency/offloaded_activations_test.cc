#include "client/zero/residency/offloaded_activations.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);

// Items of a few pages with different sizes.
std::vector<uint64_t> SizesOf(uint32_t items) {
  std::vector<uint64_t> sizes;
  for (uint32_t i = 0; i < items; ++i) sizes.push_back(1000 + 777 * (i % 5));
  return sizes;
}

std::byte PatternOf(uint32_t round, uint32_t item) {
  return static_cast<std::byte>(17 * round + item + 1);
}

class OffloadedActivationsTest : public RoomsTest {
 protected:
  void Make(std::vector<uint64_t> sizes, uint32_t places, Stream* stream = nullptr) {
    GiveBack();
    shape_ = {.item_bytes = std::move(sizes), .places = places};
    ASSERT_TRUE(CheckActivationShape(shape_).ok());
    auto stack = OffloadedActivations::Create(session_.get(), shape_, stream, kTimeout);
    ASSERT_TRUE(stack.ok()) << stack.status();
    stack_ = *std::move(stack);
    std::vector<ChunkId> ids;
    for (uint32_t i = 0; i < places; ++i) {
      const auto made = session_->Allocate(
          {{"place", ChunkKind::kGeneric, PlaceBytes(shape_), /*has_home=*/false}});
      ASSERT_TRUE(made.ok()) << made.status();
      ids.push_back(made->front().id);
      ASSERT_TRUE(session_->AllocateExtent(ids.back(), kAnyOffset, true).Wait(kTimeout).ok());
    }
    places_ = ids;
    stack_->SetPlaces(std::move(ids));
  }
  void GiveBack() {
    stack_.reset();
    for (const ChunkId place : places_) EXPECT_TRUE(session_->Drop(place).Wait(kTimeout).ok());
    EXPECT_TRUE(session_->Free(places_).ok());
    places_.clear();
  }
  void TearDown() override {
    GiveBack();
    RoomsTest::TearDown();
  }

  uint32_t items() const { return static_cast<uint32_t>(shape_.item_bytes.size()); }

  // Pushes an item while the one below it is not complete yet, as a trainer does.
  void Forward(uint32_t round, uint32_t count) {
    ASSERT_TRUE(stack_->Begin().ok());
    for (uint32_t i = 0; i <= count; ++i) {
      if (i < count) {
        const absl::StatusOr<std::byte*> place = stack_->Push();
        ASSERT_TRUE(place.ok()) << place.status();
        std::fill_n(*place, shape_.item_bytes[i], PatternOf(round, i));
      }
      if (i > 0) {
        ASSERT_TRUE(stack_->Written(i - 1).ok());
      }
    }
  }
  void Backward(uint32_t round, uint32_t count) {
    for (uint32_t i = count; i-- > 0;) {
      const absl::StatusOr<std::byte*> place = stack_->Top();
      ASSERT_TRUE(place.ok()) << place.status();
      const bool same = std::all_of(*place, *place + shape_.item_bytes[i],
                                    [&](std::byte b) { return b == PatternOf(round, i); });
      EXPECT_TRUE(same) << "item " << i << " of round " << round;
      std::fill_n(*place, shape_.item_bytes[i], std::byte{0});  // its backward pass overwrites it
      ASSERT_TRUE(stack_->Pop().ok());
    }
  }
  uint64_t LeavingBytes() const {
    const auto end = shape_.item_bytes.end() - shape_.places;
    return std::accumulate(shape_.item_bytes.begin(), end, uint64_t{0});
  }

  ActivationShape shape_;
  std::vector<ChunkId> places_;
  std::unique_ptr<OffloadedActivations> stack_;
};

TEST_F(OffloadedActivationsTest, ItemsOfAnyNumber_ComeBackAsTheyWereWritten) {
  for (const uint32_t count : {2u, 3u, 4u, 7u, 12u}) {
    for (const uint32_t places : {2u, 3u, count}) {
      if (places > count) continue;
      SCOPED_TRACE(::testing::Message() << count << " items, " << places << " places");
      Make(SizesOf(count), places);
      const TransferTotals before = session_->Totals();
      constexpr uint32_t kRounds = 3;
      for (uint32_t round = 0; round < kRounds; ++round) {
        Forward(round, count);
        Backward(round, count);
      }
      // Each item that shares its place with another one crosses the link once each way.
      EXPECT_EQ(session_->Totals().device_to_host_bytes - before.device_to_host_bytes,
                kRounds * LeavingBytes());
      EXPECT_EQ(session_->Totals().host_to_device_bytes - before.host_to_device_bytes,
                kRounds * LeavingBytes());
      EXPECT_EQ(stack_->returned_bytes(), kRounds * LeavingBytes());
    }
  }
}

TEST_F(OffloadedActivationsTest, FewerItemsThanTheShapeHas_ComeBackToo) {
  Make(SizesOf(9), 2);
  for (const uint32_t count : {9u, 3u, 1u, 6u}) {
    Forward(count, count);
    Backward(count, count);
  }
}

TEST_F(OffloadedActivationsTest, MicroBatchThatIsGivenUp_LeavesNothing) {
  Make(SizesOf(8), 3);
  Forward(1, 6);
  Forward(2, 8);
  ASSERT_TRUE(stack_->Top().ok());
  ASSERT_TRUE(stack_->Pop().ok());
  Forward(3, 8);
  Backward(3, 8);
}

TEST_F(OffloadedActivationsTest, WorkOnAStream_IsDoneBeforeItsItemLeaves) {
  const auto stream = session_->MakeStream("trainer");
  ASSERT_TRUE(stream.ok()) << stream.status();
  Make(SizesOf(7), 2, stream->get());
  for (uint32_t round = 0; round < 4; ++round) {
    ASSERT_TRUE(stack_->Begin().ok());
    for (uint32_t i = 0; i < items(); ++i) {
      const absl::StatusOr<std::byte*> place = stack_->Push();
      ASSERT_TRUE(place.ok()) << place.status();
      (*stream)->Enqueue([place = *place, bytes = shape_.item_bytes[i], round, i] {
        std::fill_n(place, bytes, PatternOf(round, i));
      });
      ASSERT_TRUE(stack_->Written(i).ok());
    }
    for (uint32_t i = items(); i-- > 0;) {
      const absl::StatusOr<std::byte*> place = stack_->Top();
      ASSERT_TRUE(place.ok()) << place.status();
      (*stream)->Enqueue([place = *place, bytes = shape_.item_bytes[i], round, i] {
        EXPECT_EQ(std::count(place, place + bytes, PatternOf(round, i)), bytes) << "item " << i;
        std::fill_n(place, bytes, std::byte{0});
      });
      ASSERT_TRUE(stack_->Pop().ok());
    }
  }
  (*stream)->Synchronize();
  GiveBack();
}

TEST_F(OffloadedActivationsTest, WhatAStreamHasYetToWrite_DoesNotLeaveBefore) {
  const auto stream = session_->MakeStream("trainer");
  ASSERT_TRUE(stream.ok()) << stream.status();
  Make(SizesOf(3), 2, stream->get());
  const auto other = session_->Allocate({{"other", ChunkKind::kGeneric, 64}});
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(stack_->Begin().ok());
  const absl::StatusOr<std::byte*> first = stack_->Push();
  ASSERT_TRUE(first.ok() && stack_->Push().ok());
  std::promise<void> gate;
  (*stream)->Enqueue([passed = gate.get_future().share(), place = *first, this] {
    passed.wait();
    std::fill_n(place, shape_.item_bytes[0], PatternOf(0, 0));
  });
  ASSERT_TRUE(stack_->Written(0).ok());
  // Copies in one direction run in order. If the item had left, its copy would have ended by now.
  ASSERT_TRUE(
      session_->Transfer({.source = places_[1], .destination = other->front().id, .bytes = 64})
          .Wait(kTimeout)
          .ok());
  gate.set_value();
  ASSERT_TRUE(stack_->Written(1).ok());
  const absl::StatusOr<std::byte*> last = stack_->Push();
  ASSERT_TRUE(last.ok()) << last.status();
  std::fill_n(*last, shape_.item_bytes[2], std::byte{0});
  for (int above = 0; above < 2; ++above) ASSERT_TRUE(stack_->Top().ok() && stack_->Pop().ok());
  const absl::StatusOr<std::byte*> back = stack_->Top();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::count(*back, *back + shape_.item_bytes[0], PatternOf(0, 0)), shape_.item_bytes[0]);
  GiveBack();
}

TEST_F(OffloadedActivationsTest, CallsOutOfTurn_AreRefused) {
  Make(SizesOf(3), 2);
  const auto refused = [](const absl::Status& status, const char* why) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  ASSERT_TRUE(stack_->Begin().ok());
  refused(stack_->Top().status(), "not on the stack");
  refused(stack_->Pop(), "not on the stack");
  refused(stack_->Written(0), "not in its place");
  ASSERT_TRUE(stack_->Push().ok());
  ASSERT_TRUE(stack_->Push().ok());
  refused(stack_->Push().status(), "not Written");
  ASSERT_TRUE(stack_->Written(0).ok());
  refused(stack_->Written(0), "not in its place");
  ASSERT_TRUE(stack_->Push().ok());
  refused(stack_->Push().status(), "more than the stack has");
  Backward(0, 0);
}

TEST(CheckActivationShape, WhatCannotBe_IsRefusedByItsName) {
  const auto refused = [](ActivationShape shape, const char* what) {
    const absl::Status status = CheckActivationShape(shape);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(what));
  };
  refused({.item_bytes = {}, .places = 1}, "item_bytes is empty");
  refused({.item_bytes = {1, 0, 1}, .places = 2}, "item_bytes[1] is 0");
  refused({.item_bytes = {1, 1, 1}, .places = 1}, "places is 1");
  refused({.item_bytes = {1, 1, 1}, .places = 4}, "places is 4");
  EXPECT_TRUE(CheckActivationShape({.item_bytes = {1}, .places = 1}).ok());
}

}  // namespace
}  // namespace geminid::zero
