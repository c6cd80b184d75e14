#include "client/disk/extent_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/base/temporary_folder.h"
#include "tests/client/disk/blocks.h"
#include "tests/client/disk/scripted_io.h"

namespace geminid::disk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPayload = (uint64_t{2} << 20) + 5000;
constexpr ExtentKey kKey = {.owner = 2, .version = 9};
const std::vector<uint64_t> kPayloads = {kPayload, 0, 3000, kPayload};

TEST(ExtentMap, ExtentsAreOneAfterTheOther_WithTheirHeadersInWholeBlocks) {
  const ExtentMap map(kPayloads);
  EXPECT_EQ(map.offset(0), 0u);
  EXPECT_EQ(map.bytes(0), kBlockBytes + base::RoundUp(kPayload, kBlockBytes));
  EXPECT_EQ(map.bytes(1), 0u);
  EXPECT_EQ(map.bytes(2), 2 * kBlockBytes);
  EXPECT_EQ(map.offset(3), map.bytes(0) + map.bytes(2));
  EXPECT_EQ(map.total_bytes(), 2 * map.bytes(0) + map.bytes(2));
  EXPECT_EQ(map.largest(), map.bytes(0));
}

// The parameters: the number of disks, and whether to use io_uring, if it is available.
class ExtentIoTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void SetUp() override {
    spec_.bytes = map_.total_bytes();
    spec_.name = NameOfFiles("test");
    for (int disk = 0; disk < std::get<0>(GetParam()); ++disk) {
      spec_.folders.push_back(folder_ / std::to_string(disk));
      std::filesystem::create_directory(spec_.folders.back());
    }
    MakeFiles(/*direct=*/true);
  }

  // `direct`: bypasses the page cache, if the file system can.
  void MakeFiles(bool direct) {
    io_.reset();
    files_.reset();
    spec_.direct = direct;
    absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = std::make_unique<StripedFiles>(*std::move(files));
    Connect();
  }

  void Connect(uint32_t depth = 4) {
    io_.reset();
    auto io = *MakeFileIo({.depth = depth, .uring = std::get<1>(GetParam())});
    io_ = std::make_unique<ExtentIo>(*files_, map_,
                                     std::make_unique<ScriptedIo>(std::move(io), &script_),
                                     absl::Seconds(30), &traffic_);
  }

  Blocks Filled(size_t extent, uint64_t seed) const {
    Blocks blocks(map_.bytes(extent));
    blocks.Fill(seed);
    return blocks;
  }
  std::span<std::byte> PayloadOf(size_t extent, Blocks* blocks) const {
    return ExtentContents{blocks->span(), map_.payload_bytes(extent)}.payload();
  }
  absl::Status Write(size_t extent, uint64_t seed, const ExtentKey& key = kKey) {
    Blocks blocks = Filled(extent, seed);
    return io_->Finish(io_->StartWrite(extent, key, blocks.span()));
  }
  // Reads, and checks that the bytes are those written with the seed.
  absl::Status Read(size_t extent, uint64_t seed, const ExtentKey& key = kKey) {
    Blocks blocks(map_.bytes(extent));
    blocks.Fill(77);
    const absl::Status status =
        io_->FinishRead(io_->StartRead(extent, blocks.span()), key, /*may_be_blank=*/false);
    if (!status.ok()) return status;
    Blocks expected = Filled(extent, seed);
    EXPECT_TRUE(std::ranges::equal(PayloadOf(extent, &blocks), PayloadOf(extent, &expected)));
    return status;
  }
  // Sets the fate of the first request of this kind; later ones succeed.
  void FailOnce(IoKind kind, Fate fate) {
    script_ = [kind, fate, failed = false](const IoRequest& request) mutable {
      if (request.kind != kind || failed) return Fate{};
      failed = true;
      return fate;
    };
  }
  static std::string Words(const absl::Status& status) { return std::string(status.message()); }

  base::TemporaryFolder folder_;
  StripedFilesSpec spec_;
  ExtentMap map_{kPayloads};
  std::unique_ptr<StripedFiles> files_;
  Script script_;
  DiskTraffic traffic_;
  std::unique_ptr<ExtentIo> io_;
};

TEST_P(ExtentIoTest, WhatWasWritten_IsReadBackByThisProcessAndTheNext) {
  ASSERT_TRUE(Write(0, 1).ok());
  ASSERT_TRUE(Write(2, 2).ok());
  ASSERT_TRUE(Write(3, 3).ok());
  EXPECT_TRUE(Read(0, 1).ok());
  const uint64_t identity = files_->identity();
  io_.reset();
  files_.reset();
  files_ = std::make_unique<StripedFiles>(*StripedFiles::Open(spec_, identity));
  Connect();
  EXPECT_TRUE(Read(3, 3).ok());
  EXPECT_TRUE(Read(2, 2).ok());
  EXPECT_TRUE(Read(0, 1).ok());
}

TEST_P(ExtentIoTest, ManyUnderWay_FinishInAnyOrder) {
  Blocks first = Filled(0, 1);
  Blocks second = Filled(3, 2);
  const ExtentIo::Ticket one = io_->StartWrite(0, kKey, first.span());
  const ExtentIo::Ticket two = io_->StartWrite(3, kKey, second.span());
  EXPECT_TRUE(io_->Finish(two).ok());
  EXPECT_TRUE(io_->Finish(one).ok());
  EXPECT_TRUE(Read(0, 1).ok());
  EXPECT_TRUE(Read(3, 2).ok());
}

TEST_P(ExtentIoTest, BufferThatWasSealed_IsWrittenAsAnyExtentOfItsSize) {
  Blocks blocks = Filled(0, 4);
  io_->Seal(0, kKey, blocks.span());
  ASSERT_TRUE(io_->Finish(io_->StartSealed(3, blocks.span())).ok());
  EXPECT_TRUE(Read(3, 4).ok());
}

// A device has the data after a write. A page cache may still fail to write the data.
TEST_P(ExtentIoTest, Syncs_AreOfFilesThatGoThroughThePageCache) {
  for (const bool direct : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(MakeFiles(direct));
    std::set<int> synced;
    script_ = [&](const IoRequest& request) {
      if (request.kind == IoKind::kSync) synced.insert(request.fd);
      return Fate{};
    };
    ASSERT_TRUE(Write(0, 1).ok());
    for (uint32_t file = 0; file < spec_.folders.size(); ++file) {
      EXPECT_NE(synced.contains(files_->fd(file)), files_->is_direct(file)) << file;
      EXPECT_FALSE(!direct && files_->is_direct(file));
    }
    EXPECT_TRUE(Read(0, 1).ok());
  }
}

TEST_P(ExtentIoTest, BytesThatWereMoved_AreCounted) {
  ASSERT_TRUE(Write(0, 1).ok());
  EXPECT_EQ(traffic_.written_bytes, map_.bytes(0));
  EXPECT_EQ(traffic_.read_bytes, 0u);
  ASSERT_TRUE(Read(0, 1).ok());
  EXPECT_EQ(traffic_.read_bytes, map_.bytes(0));
}

TEST_P(ExtentIoTest, ExtentThatWasNeverWritten_IsZerosWhereThatMayBe) {
  Blocks blocks(map_.bytes(0));
  blocks.Fill(5);
  ASSERT_TRUE(io_->FinishRead(io_->StartRead(0, blocks.span()), kKey, /*may_be_blank=*/true).ok());
  EXPECT_TRUE(std::ranges::all_of(PayloadOf(0, &blocks),
                                  [](std::byte byte) { return byte == std::byte{}; }));
  const absl::Status status = Read(0, 5);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(Words(status),
              AllOf(HasSubstr(files_->path(0)), HasSubstr("nothing was ever written")));
}

TEST_P(ExtentIoTest, OlderVersion_IsNotTakenForTheNewOne) {
  ASSERT_TRUE(Write(0, 1).ok());
  EXPECT_TRUE(absl::IsDataLoss(Read(0, 1, {.owner = 2, .version = 10})));
  EXPECT_TRUE(Read(0, 1).ok());
}

// The system reports success, but the disk has nothing or only half of the data.
TEST_P(ExtentIoTest, WriteThatTheDiskLost_IsFoundWhenItIsRead) {
  ASSERT_TRUE(Write(0, 1).ok());
  for (uint64_t lost = 0; lost < 3; ++lost) {
    script_ = [lost, seen = uint64_t{0}](const IoRequest& request) mutable {
      const bool loses = request.kind == IoKind::kWrite && seen++ == lost;
      return loses ? Fate{.result = request.bytes} : Fate{};
    };
    ASSERT_TRUE(Write(0, 2 + lost, {.owner = 2, .version = 10 + lost}).ok());
    script_ = nullptr;
    EXPECT_TRUE(absl::IsDataLoss(Read(0, 2 + lost, {.owner = 2, .version = 10 + lost}))) << lost;
  }
}

// A short result did its part. The rest is requested again, from a block boundary on.
TEST_P(ExtentIoTest, ShortResults_AreCompleted) {
  ASSERT_TRUE(Write(0, 1).ok());
  for (const IoKind kind : {IoKind::kWrite, IoKind::kRead}) {
    uint64_t asked_again = 0;
    script_ = [&, cut = false](const IoRequest& request) mutable {
      if (request.kind != kind) return Fate{};
      if (std::exchange(cut, true)) {
        if (request.bytes % kStripeBytes != 0) asked_again += request.bytes;
        return Fate{};
      }
      const auto half = static_cast<int64_t>(request.bytes / 2);
      const bool reads = kind == IoKind::kRead;
      const auto offset = static_cast<off_t>(request.offset);
      const auto done = reads ? pread(request.fd, request.data, request.bytes / 2, offset)
                              : pwrite(request.fd, request.data, request.bytes / 2, offset);
      EXPECT_EQ(done, half);
      return Fate{.result = half + 100};  // the last 100 bytes are not a whole block
    };
    ASSERT_TRUE((kind == IoKind::kWrite ? Write(0, 1) : Read(0, 1)).ok());
    EXPECT_GE(asked_again, kStripeBytes / 2);
    script_ = nullptr;
    EXPECT_TRUE(Read(0, 1).ok());
  }
}

TEST_P(ExtentIoTest, ResultOfNothing_IsTheEndOfTheFileOrOfTheDisk) {
  ASSERT_TRUE(Write(0, 1).ok());
  FailOnce(IoKind::kRead, {.result = 0});
  EXPECT_TRUE(absl::IsDataLoss(Read(0, 1)));
  FailOnce(IoKind::kWrite, {.result = 0});
  EXPECT_TRUE(absl::IsResourceExhausted(Write(0, 1)));
  script_ = nullptr;
  EXPECT_TRUE(Write(0, 1).ok());
}

TEST_P(ExtentIoTest, RequestsThatTheSystemPutsOff_AreRepeated) {
  for (const int error : {EAGAIN, EINTR}) {
    FailOnce(IoKind::kWrite, {.result = -error});
    EXPECT_TRUE(Write(0, 1).ok());
    FailOnce(IoKind::kRead, {.result = -error});
    EXPECT_TRUE(Read(0, 1).ok());
  }
}

TEST_P(ExtentIoTest, FullDiskInTheMiddle_IsOneErrorAndTheOtherExtentsStay) {
  ASSERT_TRUE(Write(3, 3).ok());
  FailOnce(IoKind::kWrite, {.result = -ENOSPC});
  const absl::Status status = Write(0, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Words(status), AllOf(HasSubstr(files_->path(0)), HasSubstr("the disk is full")));
  EXPECT_TRUE(Read(3, 3).ok());
  EXPECT_TRUE(Write(0, 1).ok()) << "once there is room again";
}

TEST_P(ExtentIoTest, DiskThatCannotWriteReadOrSync_IsNamed) {
  FailOnce(IoKind::kWrite, {.result = -EIO});
  EXPECT_THAT(Words(Write(0, 1)), HasSubstr("cannot write"));
  MakeFiles(/*direct=*/false);
  FailOnce(IoKind::kSync, {.result = -EIO});
  EXPECT_THAT(Words(Write(0, 1)), HasSubstr("cannot sync"));
  ASSERT_TRUE(Write(0, 1).ok());
  // Without the page cache, medium, protection and target errors have their own numbers.
  for (const int error : {EIO, ENODATA, EILSEQ, EREMOTEIO}) {
    FailOnce(IoKind::kRead, {.result = -error});
    const absl::Status status = Read(0, 1);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(Words(status), AllOf(HasSubstr("cannot read"), HasSubstr("at byte")));
  }
}

TEST_P(ExtentIoTest, DiskThatDoesNotAnswer_IsNamedAfterTheTimeout) {
  FailOnce(IoKind::kWrite, {.never = true});
  const absl::Status status = Write(0, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Words(status),
              AllOf(HasSubstr(files_->path(0)), HasSubstr("completed no request for 30s")));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Read(0, 1))) << "and is not asked again";
}

TEST_P(ExtentIoTest, DiskThatDoesNotAnswerAmongOthers_IsTheOneThatIsNamed) {
  const auto last = static_cast<uint32_t>(spec_.folders.size() - 1);
  script_ = [&](const IoRequest& request) { return Fate{.never = request.fd == files_->fd(last)}; };
  const absl::Status status = Write(0, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Words(status), HasSubstr(files_->path(last)));
}

TEST_P(ExtentIoTest, FileTruncatedUnderUs_IsSaidWithItsName) {
  ASSERT_TRUE(Write(3, 1).ok());
  const std::string path = files_->path(0);
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(kStripeBytes)), 0);
  const absl::Status status = Read(3, 1);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(Words(status), AllOf(HasSubstr(path), HasSubstr("truncated")));
}

TEST_P(ExtentIoTest, FileRemovedUnderUs_GoesOn) {
  for (const std::string& name : files_->names()) std::filesystem::remove(name);
  ASSERT_TRUE(Write(0, 1).ok());
  EXPECT_TRUE(Read(0, 1).ok());
}

// Another program overwrites the header with that of another extent.
TEST_P(ExtentIoTest, FileOverwrittenUnderUs_IsFound) {
  ASSERT_TRUE(Write(0, 1).ok());
  Blocks zeros(kBlockBytes);
  ASSERT_EQ(pwrite(files_->fd(0), zeros.span().data(), kBlockBytes, kStripeBytes),
            static_cast<ssize_t>(kBlockBytes));
  EXPECT_TRUE(absl::IsDataLoss(Read(0, 1)));
}

INSTANTIATE_TEST_SUITE_P(DisksAndWays, ExtentIoTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Bool()));

}  // namespace
}  // namespace geminid::disk
