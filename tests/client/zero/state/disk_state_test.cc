#include "client/zero/state/disk_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/disk/striped_files.h"
#include "proto/shm/disk_use.h"
#include "tests/base/temporary_folder.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kElements = 5000;
constexpr DiskShape kShape = {.elements = kElements, .arrays = 2};
// Two granules of a bf16 weight, a frozen granule, and the spare.
const std::vector<DiskShape> kExtents = {kShape, DiskShape{}, kShape, kShape};

class DiskStateTest : public ::testing::Test {
 protected:
  DiskStateTest() : weight_(kElements * 2) {
    options_.disk.folders = {folder_.path()};
    options_.name = "rank";
    options_.kept = true;
    for (const uint64_t bytes : DiskMemoryBytes(kExtents)) {
      memory_.emplace_back(bytes);
      addresses_.push_back(memory_.back().data());
    }
  }

  absl::StatusOr<std::unique_ptr<DiskState>> Make(bool claimed) {
    return DiskState::Create(kExtents, options_, addresses_, claimed);
  }
  GranuleOnDisk Granule(uint32_t granule, uint64_t epoch = 0) {
    return {.granule = granule, .extent = granule, .epoch = epoch, .weight = weight_.data()};
  }
  static absl::Status Set(DiskState* disk, const GranuleOnDisk& granule, float value) {
    return disk->Use(granule, /*writes=*/true, [value](const StateView& view) {
      reinterpret_cast<float*>(view.arrays[1])[kElements - 1] = value;
      view.remainder[0] = static_cast<int16_t>(value);
      return absl::OkStatus();
    });
  }
  static float Get(DiskState* disk, const GranuleOnDisk& granule) {
    float value = -1;
    const absl::Status status = disk->Use(granule, /*writes=*/false, [&](const StateView& view) {
      value = reinterpret_cast<const float*>(view.arrays[1])[kElements - 1];
      EXPECT_EQ(view.remainder[0], static_cast<int16_t>(value));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return value;
  }
  std::string Path() const { return folder_ / disk::NameOfFiles("rank"); }

  base::TemporaryFolder folder_;
  DiskStateOptions options_;
  std::vector<std::byte> weight_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> addresses_;
};

TEST_F(DiskStateTest, NewState_IsZerosAndHasNotBeenRead) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  EXPECT_EQ(Get(disk.get(), Granule(0)), 0);
  EXPECT_EQ(Get(disk.get(), Granule(2)), 0);
  EXPECT_EQ(disk->written_bytes(), 0u);
}

TEST_F(DiskStateTest, Views_HaveTheCallersWeightAndArraysOfTheirOwn) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  const StateView view = disk->ViewOf(0, disk->places()[0].extent, weight_.data());
  EXPECT_EQ(view.weight, weight_.data());
  const auto* const remainder = reinterpret_cast<const std::byte*>(view.remainder);
  EXPECT_GE(view.arrays[0], remainder + kElements * 2);
  EXPECT_GE(view.arrays[1], view.arrays[0] + kElements * 4);
  EXPECT_LE(view.arrays[1] + kElements * 4,
            disk->places()[0].extent.data() + disk->places()[0].extent.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(disk->places()[0].extent.data()) % disk::kBlockBytes, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.arrays[0]) % 64, 0u);
}

TEST_F(DiskStateTest, WhatWasSet_IsThereWhenAnotherGranuleWasUsedInBetween) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  EXPECT_EQ(disk->written_bytes(), 0u) << "the window waits for more";
  ASSERT_TRUE(Set(disk.get(), Granule(2), 4).ok());
  EXPECT_GT(disk->written_bytes(), 0u);
  EXPECT_EQ(Get(disk.get(), Granule(0)), 3);
  EXPECT_EQ(Get(disk.get(), Granule(2)), 4);
}

TEST_F(DiskStateTest, WhatGoesToTheDisk_IsToldInTheWordsThatTheDaemonReads) {
  shm::ClientCounters counters = {};
  options_.counters = &counters;
  std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  EXPECT_EQ(shm::LoadDiskUse(counters).file_bytes, disk->file_bytes());
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  ASSERT_TRUE(disk->Flush().ok());
  const uint64_t written = disk->written_bytes();
  EXPECT_EQ(shm::LoadDiskUse(counters).written_bytes, written);
  disk.reset();
  EXPECT_EQ(shm::LoadDiskUse(counters).file_bytes, 0u);
  EXPECT_EQ(shm::LoadDiskUse(counters).written_bytes, written);
}

TEST_F(DiskStateTest, Successor_FindsWhatWasFlushedAndCountsOn) {
  std::atomic<uint64_t> written = 0;
  {
    options_.written = &written;
    const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
    ASSERT_TRUE(Set(disk.get(), Granule(0, 5), 7).ok() == false) << "nothing was written by step 5";
    ASSERT_TRUE(Set(disk.get(), Granule(0), 7).ok());
    ASSERT_TRUE(disk->Flush().ok());
    EXPECT_EQ(written, disk->written_bytes());
  }
  const absl::StatusOr<std::unique_ptr<DiskState>> disk = Make(/*claimed=*/true);
  ASSERT_TRUE(disk.ok()) << disk.status();
  EXPECT_EQ(Get(disk->get(), Granule(0)), 7);
  EXPECT_EQ((*disk)->written_bytes(), written);
}

TEST_F(DiskStateTest, LastProcessOfARun_GoesOnFromTheFilesAndLeavesNone) {
  {
    const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
    ASSERT_TRUE(Set(disk.get(), Granule(0), 7).ok());
    ASSERT_TRUE(disk->Flush().ok());
  }
  ASSERT_TRUE(std::filesystem::exists(Path()));
  options_.kept = false;
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/true);
  EXPECT_EQ(Get(disk.get(), Granule(0)), 7);
  EXPECT_FALSE(std::filesystem::exists(Path())) << "it would stay when this process is killed";
}

TEST_F(DiskStateTest, SecondWriteOfAnEpochThatTheDiskLost_IsDataLoss) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  ASSERT_TRUE(disk->Flush().ok());
  const std::string copy = folder_ / "copy";
  std::filesystem::copy_file(Path(), copy);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 4).ok());
  ASSERT_TRUE(Set(disk.get(), Granule(2), 5).ok()) << "the window leaves the first granule";
  std::ifstream from(copy, std::ios::binary);
  std::fstream to(Path(), std::ios::binary | std::ios::in | std::ios::out);
  to << from.rdbuf();
  to.close();
  const absl::Status status =
      disk->Use(Granule(0), /*writes=*/false, [](const StateView&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(DiskStateTest, SettingStateBeyondTheEndurance_IsRefused) {
  const std::unique_ptr<DiskState> without = *Make(/*claimed=*/false);
  ASSERT_TRUE(Set(without.get(), Granule(0), 3).ok());
  ASSERT_TRUE(without->Flush().ok());
  options_.name = "another";
  options_.disk.endurance_bytes = without->written_bytes();
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  ASSERT_TRUE(disk->Flush().ok());
  ASSERT_TRUE(Set(disk.get(), Granule(2), 3).ok());
  const absl::Status status = disk->Flush();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("endurance_bytes"));
}

// The version word is of a later step than the extent on disk.
TEST_F(DiskStateTest, ExtentOfAnotherVersion_IsDataLoss) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  ASSERT_TRUE(disk->Flush().ok());
  const absl::Status status =
      disk->Use(Granule(0, 9), /*writes=*/false, [](const StateView&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

// The zeros are those of a file that was truncated and extended again.
TEST_F(DiskStateTest, ExtentThatThisProcessWrote_IsNotTakenForABlankOne) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  ASSERT_TRUE(Set(disk.get(), Granule(2), 4).ok());
  const auto size = std::filesystem::file_size(Path());
  std::filesystem::resize_file(Path(), disk::kStripeBytes);
  std::filesystem::resize_file(Path(), size);
  const absl::Status status =
      disk->Use(Granule(0), /*writes=*/false, [](const StateView&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

// A previous process wrote the extent, and the disk lost it.
TEST_F(DiskStateTest, ExtentThatAPredecessorWrote_IsNotTakenForABlankOne) {
  {
    const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
    ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
    ASSERT_TRUE(disk->Flush().ok());
  }
  const auto size = std::filesystem::file_size(Path());
  std::filesystem::resize_file(Path(), disk::kStripeBytes);
  std::filesystem::resize_file(Path(), size);
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/true);
  const absl::Status status =
      disk->Use(Granule(0), /*writes=*/false, [](const StateView&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(Get(disk.get(), Granule(2)), 0) << "nobody wrote that one";
}

// Each thread uses a granule part by part.
TEST_F(DiskStateTest, ThreadsThatTakeTurns_ReadEachGranuleOnceATurn) {
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  constexpr int kTurns = 50;
  const auto read = [&](uint32_t granule) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::unique_lock<std::mutex> mine = disk->LockDisk();
      for (int part = 0; part < 5; ++part) EXPECT_EQ(Get(disk.get(), Granule(granule)), 0);
    }
  };
  std::thread other([&] { read(2); });
  read(0);
  other.join();
  const uint64_t extent = disk::ExtentMap({kShape.payload_bytes()}).total_bytes();
  EXPECT_LE(disk->read_bytes(), 2 * kTurns * extent);
}

TEST_F(DiskStateTest, BytesThatWereWrittenToFilesThatAreGone_AreCounted) {
  std::atomic<uint64_t> written = 1000;
  options_.written = &written;
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  EXPECT_EQ(disk->written_bytes(), 1000u);
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  ASSERT_TRUE(disk->Flush().ok());
  EXPECT_GT(disk->written_bytes(), 1000u);
  EXPECT_EQ(written, disk->written_bytes());
}

TEST_F(DiskStateTest, FilesThatAreGoneOrNotThose_AreSaidToASuccessor) {
  { ASSERT_TRUE(Make(/*claimed=*/false).ok()); }
  std::filesystem::remove(Path());
  EXPECT_TRUE(absl::IsNotFound(Make(/*claimed=*/true).status()));
  const std::vector<std::vector<std::byte>> before = memory_;
  { ASSERT_TRUE(Make(/*claimed=*/false).ok()); }
  std::memcpy(memory_[0].data(), before[0].data(), before[0].size());
  EXPECT_TRUE(absl::IsDataLoss(Make(/*claimed=*/true).status()));
}

// A step writes both granules. The spare is none of them.
TEST_F(DiskStateTest, EnduranceOfTwoSteps_IsSpentByTwoStepsAndAByte) {
  const uint64_t step =
      disk::ExtentMap({kShape.payload_bytes(), 0, kShape.payload_bytes()}).total_bytes();
  options_.spares = 1;
  for (const uint64_t least : {2 * step, 2 * step - 1}) {
    options_.disk.endurance_bytes = least;
    const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
    EXPECT_FALSE(disk->IsSpent(1));
    EXPECT_EQ(disk->IsSpent(2), least < 2 * step);
    EXPECT_TRUE(disk->IsSpent(3));
  }
}

TEST_F(DiskStateTest, ValuesThatWereSet_CountBeforeAndAfterTheyAreWritten) {
  const uint64_t granule = disk::ExtentMap({kShape.payload_bytes()}).total_bytes();
  options_.spares = 1;
  options_.disk.endurance_bytes = 3 * granule - 1;
  const std::unique_ptr<DiskState> disk = *Make(/*claimed=*/false);
  EXPECT_FALSE(disk->IsSpent());
  ASSERT_TRUE(Set(disk.get(), Granule(0), 3).ok());
  EXPECT_TRUE(disk->IsSpent());
  ASSERT_TRUE(disk->Flush().ok());
  EXPECT_EQ(disk->written_bytes(), granule);
  EXPECT_TRUE(disk->IsSpent());
}

TEST_F(DiskStateTest, How_SaysWhichDisksAndByWhat) {
  EXPECT_THAT((*Make(/*claimed=*/false))->how(),
              ::testing::AllOf(HasSubstr("1 disk"), HasSubstr("; ")));
}

}  // namespace
}  // namespace geminid::zero
