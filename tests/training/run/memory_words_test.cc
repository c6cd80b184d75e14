#include "training/run/memory_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace geminid::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(DiskEnduranceWords, AreSaidFromNineTenthsOn) {
  EXPECT_EQ(DiskEnduranceWords(1, 899, 1000), "");
  EXPECT_THAT(DiskEnduranceWords(1, 900, 1000),
              AllOf(HasSubstr("rank 1 has written 900"), HasSubstr("--state-disk-endurance")));
}

TEST(DiskEnduranceWords, WithoutALimit_AreNeverSaid) {
  EXPECT_EQ(DiskEnduranceWords(0, uint64_t{1} << 50, 0), "");
}

class MemoryWordsTest : public ::testing::Test {
 protected:
  MemoryWordsTest() {
    options_.zero.state_placement = zero::StatePlacement::kDisk;
    options_.zero.state_disk.folders = {"/disk"};
  }

  // The next words of a rank that has written so many bytes.
  std::string Said(MemoryWords* words, uint64_t written, const std::string& how = "/disk") {
    said_.clear();
    zero::Statistics statistics;
    statistics.state_disk = how;
    statistics.disk_written_bytes = written;
    statistics.state_disk_bytes = on_disk_;
    words->SayStateDisk(statistics, &progress_);
    return said_;
  }

  TrainOptions options_;
  collectives::RankInfo info_;
  std::string said_;
  uint64_t on_disk_ = 4096;
  Progress progress_{ProgressMode::kLines, [this](const std::string& text) { said_ += text; }};
};

TEST_F(MemoryWordsTest, OfStateOnDisk_SayHowOnceAndWhenTheEnduranceIsNearlySpent) {
  options_.zero.state_disk.endurance_bytes = 1000;
  MemoryWords words(options_, info_);
  EXPECT_THAT(Said(&words, 0), HasSubstr("optimizer state: /disk"));
  EXPECT_EQ(Said(&words, 500), "");
  EXPECT_TRUE(words.HasStateDiskToSay());
  EXPECT_THAT(Said(&words, 950), HasSubstr("has written 950"));
  EXPECT_FALSE(words.HasStateDiskToSay());
  EXPECT_EQ(Said(&words, 990), "");
}

// Earlier processes wrote these bytes.
TEST_F(MemoryWordsTest, OfARankWithNothingOnDisk_SayNothingOfTheEndurance) {
  options_.zero.state_disk.endurance_bytes = 1000;
  on_disk_ = 0;
  MemoryWords words(options_, info_);
  EXPECT_THAT(Said(&words, 950, "none on disk"), HasSubstr("none on disk"));
  EXPECT_EQ(Said(&words, 990), "");
}

// While there are words left, every step gathers statistics.
TEST_F(MemoryWordsTest, WithoutALimit_AreAllSaidAtFirst) {
  MemoryWords words(options_, info_);
  EXPECT_TRUE(words.HasStateDiskToSay());
  EXPECT_THAT(Said(&words, 0, ""), HasSubstr("--state-disk does nothing"));
  EXPECT_FALSE(words.HasStateDiskToSay());
}

TEST_F(MemoryWordsTest, OfStateElsewhere_AreNone) {
  options_.zero.state_placement = zero::StatePlacement::kHost;
  options_.zero.state_disk.folders.clear();
  MemoryWords words(options_, info_);
  EXPECT_FALSE(words.HasStateDiskToSay());
  EXPECT_EQ(Said(&words, 0), "");
}

// The engine's words begin with the amount of state on the disk.
TEST_F(MemoryWordsTest, OfStateThatTheEngineDivides_AreTheEngines) {
  options_.zero.state_placement = zero::StatePlacement::kAuto;
  MemoryWords words(options_, info_);
  EXPECT_THAT(Said(&words, 0, "2 of 6 chunks on disk"),
              HasSubstr("optimizer state: 2 of 6 chunks on disk"));
}

// Hosts may have different disks.
TEST_F(MemoryWordsTest, OfTheFirstRankOfAnotherHost_NameTheRank) {
  info_ = {.rank = 2, .world_size = 4, .local_rank = 0, .local_world_size = 2};
  MemoryWords first(options_, info_);
  EXPECT_THAT(Said(&first, 0), HasSubstr("rank 2: optimizer state: /disk"));
  info_.rank = 3;
  info_.local_rank = 1;
  MemoryWords second(options_, info_);
  EXPECT_EQ(Said(&second, 0), "");
}

TEST_F(MemoryWordsTest, OfMemoryThatADriverRefused_AreSaidOnce) {
  MemoryWords words(options_, info_);
  words.SayRefused({}, &progress_);
  EXPECT_EQ(said_, "");
  HostRegistration host;
  host.bytes = 4096;
  host.refused_bytes = 1024;
  host.refusal = "no room";
  words.SayRefused(host, &progress_);
  EXPECT_THAT(said_, HasSubstr("no room"));
  said_.clear();
  words.SayRefused(host, &progress_);
  EXPECT_EQ(said_, "");
}

}  // namespace
}  // namespace geminid::trainer
