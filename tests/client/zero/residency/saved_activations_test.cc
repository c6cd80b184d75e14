#include "client/zero/residency/saved_activations.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "client/zero/residency/home_ranges.h"
#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);
constexpr uint64_t kPlaceBytes = 8192;
constexpr uint32_t kPlaces = 3;

// The trainer's item, and its number in the store.
struct Tensor {
  std::vector<std::byte> bytes;
  uint64_t item = 0;
};

Tensor TensorOf(uint32_t number, uint64_t bytes) {
  Tensor tensor{.bytes = std::vector<std::byte>(bytes)};
  std::mt19937 random(number);
  std::ranges::generate(tensor.bytes, [&] { return static_cast<std::byte>(random()); });
  return tensor;
}

class SavedActivationsTest : public RoomsTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(RoomsTest::SetUp());
    const ActivationStoreOptions options = {.place_bytes = kPlaceBytes, .places = kPlaces};
    ASSERT_TRUE(CheckActivationStoreOptions(options).ok());
    for (uint32_t i = 0; i < kPlaces; ++i) {
      const auto made =
          session_->Allocate({{"place", ChunkKind::kGeneric, kPlaceBytes, /*has_home=*/false}});
      ASSERT_TRUE(made.ok()) << made.status();
      places_.push_back(made->front().id);
      ASSERT_TRUE(session_->AllocateExtent(places_.back(), kAnyOffset, true).Wait(kTimeout).ok());
    }
    store_ = std::make_unique<SavedActivations>(session_.get(), options, places_, kTimeout);
  }
  void TearDown() override {
    store_.reset();
    for (const ChunkId place : places_) EXPECT_TRUE(session_->Drop(place).Wait(kTimeout).ok());
    EXPECT_TRUE(session_->Free(places_).ok());
    RoomsTest::TearDown();
  }

  void Save(Tensor* tensor) {
    const absl::StatusOr<uint64_t> item =
        store_->Save(tensor->bytes.data(), tensor->bytes.size(), {});
    ASSERT_TRUE(item.ok()) << item.status();
    tensor->item = *item;
  }
  // Items of one piece, of several pieces, and of some bytes more or less.
  std::vector<Tensor> SaveMany(uint32_t count) {
    std::vector<Tensor> tensors;
    for (uint32_t i = 0; i < count; ++i) {
      tensors.push_back(TensorOf(i, 100 + (i % 5) * kPlaceBytes + 777 * (i % 3)));
      Save(&tensors.back());
    }
    return tensors;
  }
  bool ComesBack(const Tensor& tensor) {
    std::vector<std::byte> back(tensor.bytes.size());
    const absl::Status loaded = store_->Load(tensor.item, back.data(), back.size(), {});
    EXPECT_TRUE(loaded.ok()) << loaded;
    return back == tensor.bytes;
  }

  std::vector<ChunkId> places_;
  std::unique_ptr<SavedActivations> store_;
};

TEST_F(SavedActivationsTest, ItemsInAnyOrderAndTwice_ComeBackAsTheyWereSaved) {
  std::vector<Tensor> tensors = SaveMany(12);
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    for (const Tensor& tensor : tensors) EXPECT_TRUE(ComesBack(tensor)) << tensor.item;
    round % 2 == 0 ? std::ranges::reverse(tensors) : std::ranges::shuffle(tensors, random);
  }
  EXPECT_EQ(store_->items(), tensors.size());
}

TEST_F(SavedActivationsTest, SourceThatIsChangedAfterwards_ChangesNoItem) {
  std::vector<Tensor> tensors = SaveMany(8);
  for (const Tensor& tensor : tensors) {
    Tensor changed = tensor;
    Save(&changed);
    std::ranges::fill(changed.bytes, std::byte{0});
    EXPECT_TRUE(ComesBack({.bytes = tensor.bytes, .item = changed.item})) << tensor.item;
  }
}

TEST_F(SavedActivationsTest, InReverse_EachThatLeftItsPlaceCrossesTheLinkOnce) {
  constexpr uint32_t kItems = 9;
  std::vector<Tensor> tensors;
  for (uint32_t i = 0; i < kItems; ++i) {
    tensors.push_back(TensorOf(i, kPlaceBytes));
    ASSERT_NO_FATAL_FAILURE(Save(&tensors.back()));
  }
  while (!tensors.empty()) {
    EXPECT_TRUE(ComesBack(tensors.back()));
    EXPECT_TRUE(store_->Drop(tensors.back().item).ok());
    tensors.pop_back();
  }
  EXPECT_EQ(store_->returned_bytes(), (kItems - kPlaces) * kPlaceBytes);
}

TEST_F(SavedActivationsTest, DroppedItemsOfManyRounds_TakeNoMoreHostMemoryThanOne) {
  uint64_t after_one = 0;
  for (int round = 0; round < 20; ++round) {
    const std::vector<Tensor> tensors = SaveMany(30);
    // Some items are never loaded, and some are dropped during their copy.
    for (const Tensor& tensor : tensors) {
      if (tensor.item % 4 == 0) {
        EXPECT_TRUE(ComesBack(tensor));
      }
      EXPECT_TRUE(store_->Drop(tensor.item).ok());
    }
    EXPECT_EQ(store_->items(), 0u);
    // No copy is in progress then, so all dropped items are free.
    EXPECT_TRUE(SavedActivations::Pause(store_.get()).status().ok());
    if (round == 0) after_one = store_->host_bytes();
  }
  EXPECT_EQ(store_->host_bytes(), after_one);
}

TEST_F(SavedActivationsTest, HostMemory_IsChargedToTheSession_UntilTheStoreEnds) {
  const uint64_t before = session_->HostBytes().value();
  SaveMany(40);
  EXPECT_GT(store_->host_bytes(), 0u);
  EXPECT_EQ(session_->HostBytes().value(), before + store_->host_bytes());
  store_.reset();
  EXPECT_EQ(session_->HostBytes().value(), before);
}

TEST_F(SavedActivationsTest, OnAStream_SaveReadsWhatWasQueuedBefore_AndNotWhatComesAfter) {
  const auto stream = session_->MakeStream("trainer");
  ASSERT_TRUE(stream.ok()) << stream.status();
  const Tensor expected = TensorOf(7, kPlaceBytes);
  Tensor tensor{.bytes = std::vector<std::byte>(kPlaceBytes)};
  std::promise<void> gate;
  (*stream)->Enqueue([passed = gate.get_future().share(), &tensor, &expected] {
    passed.wait();
    tensor.bytes = expected.bytes;
  });
  const StreamHandle handle = {stream->get()};
  const auto item = store_->Save(tensor.bytes.data(), kPlaceBytes, handle);
  ASSERT_TRUE(item.ok()) << item.status();
  (*stream)->Enqueue([&tensor] { std::ranges::fill(tensor.bytes, std::byte{0}); });
  // Copies in one direction run in order. If the item had left, its copy would have ended by now.
  EXPECT_TRUE(ComesBack(SaveMany(1).front()));
  gate.set_value();
  SaveMany(6);  // takes its place, so that its bytes are in host memory
  std::vector<std::byte> back(kPlaceBytes);
  ASSERT_TRUE(store_->Load(*item, back.data(), kPlaceBytes, handle).ok());
  (*stream)->Synchronize();
  EXPECT_EQ(back, expected.bytes);
}

TEST_F(SavedActivationsTest, OnAStreamThatIsLate_ItsPlaceIsNotReusedBeforeItHasRead) {
  const auto stream = session_->MakeStream("trainer");
  ASSERT_TRUE(stream.ok()) << stream.status();
  const std::vector<Tensor> tensors = SaveMany(8);
  std::promise<void> gate;
  (*stream)->Enqueue([passed = gate.get_future().share()] { passed.wait(); });
  std::vector<std::byte> back(tensors[0].bytes.size());
  ASSERT_TRUE(store_->Load(tensors[0].item, back.data(), back.size(), {stream->get()}).ok());
  ASSERT_TRUE(store_->Drop(tensors[0].item).ok());
  for (size_t i = 1; i < tensors.size(); ++i) EXPECT_TRUE(ComesBack(tensors[i]));
  gate.set_value();
  (*stream)->Synchronize();
  EXPECT_EQ(back, tensors[0].bytes);
}

TEST_F(SavedActivationsTest, SeveralThreads_GetTheirOwnItems) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 10; ++round) {
        std::vector<Tensor> mine;
        for (uint32_t i = 0; i < 6; ++i) {
          mine.push_back(TensorOf(100 * t + i, 1 + random() % (3 * kPlaceBytes)));
          Save(&mine.back());
        }
        std::ranges::shuffle(mine, random);
        for (const Tensor& tensor : mine) {
          wrong += ComesBack(tensor) ? 0 : 1;
          wrong += store_->Drop(tensor.item).ok() ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(store_->items(), 0u);
}

TEST_F(SavedActivationsTest, AfterAPause_ItemsThatLayInPlacesComeFromHostMemory) {
  Tensor tensor = TensorOf(1, kPlaceBytes);
  ASSERT_NO_FATAL_FAILURE(Save(&tensor));
  std::future<bool> back;
  {
    const SavedActivations::Pause pause(store_.get());
    ASSERT_TRUE(pause.status().ok()) << pause.status();
    back = std::async(std::launch::async, [&] { return ComesBack(tensor); });
  }
  EXPECT_TRUE(back.get());
  EXPECT_EQ(store_->returned_bytes(), kPlaceBytes);
}

TEST_F(SavedActivationsTest, ItemThatHostMemoryHasNoRoomFor_IsRefused_AndTheStoreGoesOn) {
  Tensor tensor = TensorOf(1, 3 * kPlaceBytes);
  ASSERT_NO_FATAL_FAILURE(Save(&tensor));
  const uint64_t before = store_->host_bytes();
  const auto refused = store_->Save(tensor.bytes.data(), uint64_t{4} << 30, {});
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_EQ(store_->items(), 1u);
  EXPECT_EQ(store_->host_bytes(), before);
  EXPECT_TRUE(ComesBack(tensor));
}

TEST_F(SavedActivationsTest, CallsForWhatIsNotThere_AreRefused) {
  Tensor tensor = TensorOf(1, 10);
  ASSERT_NO_FATAL_FAILURE(Save(&tensor));
  std::byte to[10];
  const auto refused = [](const absl::Status& status, const char* why) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused(store_->Save(to, 0, {}).status(), "0 bytes");
  refused(store_->Load(tensor.item + 1, to, 10, {}), "never saved");
  refused(store_->Load(tensor.item, to, 9, {}), "has 10 bytes, and 9");
  ASSERT_TRUE(store_->Drop(tensor.item).ok());
  refused(store_->Drop(tensor.item), "was dropped");
  refused(store_->Load(tensor.item, to, 10, {}), "was dropped");
}

TEST(CheckActivationStoreOptions, WhatCannotBe_IsRefusedByItsName) {
  const auto refused = [](ActivationStoreOptions options, const char* what) {
    const absl::Status status = CheckActivationStoreOptions(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(what));
  };
  refused({.place_bytes = 0}, "place_bytes is 0");
  refused({.places = 1}, "places is 1");
  refused({.places = 1025}, "places is 1025");
}

TEST_F(RoomsTest, RangesOfHomes_GivenBackInAnyOrder_AreOneRangeAgain) {
  constexpr uint64_t kChunkBytes = 4096;
  HomeRanges homes(session_.get(), "homes", kChunkBytes);
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    std::vector<HomeRanges::Range> taken;
    for (uint64_t bytes = 0; bytes < kChunkBytes; bytes += 256) {
      const auto ranges = homes.Take(200, 200);
      ASSERT_TRUE(ranges.ok()) << ranges.status();
      EXPECT_EQ(ranges->front().bytes, 256u);
      taken.push_back(ranges->front());
    }
    EXPECT_EQ(homes.bytes(), kChunkBytes);
    std::ranges::sort(taken, {}, &HomeRanges::Range::offset);
    for (size_t i = 1; i < taken.size(); ++i) {
      EXPECT_EQ(taken[i].offset, taken[i - 1].offset + 256);
    }
    std::ranges::shuffle(taken, random);
    for (const HomeRanges::Range& range : taken) homes.Give(range);
    const auto whole = homes.Take(kChunkBytes, kChunkBytes);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(homes.bytes(), kChunkBytes);
    homes.Give(whole->front());
  }
}

}  // namespace
}  // namespace geminid::zero
