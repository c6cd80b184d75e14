#include "client/disk/extent_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "client/disk/stripes.h"
#include "tests/client/disk/blocks.h"

namespace geminid::disk {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kFile = 7;
constexpr ExtentKey kKey = {.owner = 3, .version = 41};
constexpr uint64_t kPayload = (uint64_t{2} << 20) + 100;  // three pieces

class ExtentHeaderTest : public ::testing::Test {
 protected:
  ExtentHeaderTest() : blocks_(ExtentHeaderBytes(kPayload) + kPayload) {
    blocks_.Fill(1);
    SealExtent(kFile, kKey, contents());
  }
  ExtentContents contents() { return {.extent = blocks_.span(), .payload_bytes = kPayload}; }
  std::string WhyNot(const ExtentKey& key = kKey, uint64_t file = kFile) {
    const absl::Status status = CheckExtent(file, key, contents());
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  }

  Blocks blocks_;
};

TEST_F(ExtentHeaderTest, WhatWasWritten_IsTaken) { EXPECT_EQ(WhyNot(), ""); }

TEST_F(ExtentHeaderTest, AnyByteOfThePayloadThatDiffers_IsFoundWithItsPiece) {
  for (const uint64_t at : {uint64_t{0}, kPayload / 2, kPayload - 1}) {
    contents().payload()[at] ^= std::byte{1};
    EXPECT_THAT(WhyNot(), HasSubstr("bytes from " + std::to_string(at >> 20 << 20)));
    contents().payload()[at] ^= std::byte{1};
  }
}

TEST_F(ExtentHeaderTest, AnyByteOfTheHeaderThatDiffers_IsFound) {
  for (size_t at = 0; at < 48 + 3 * 4; ++at) {
    if (at >= 40 && at < 44) continue;  // unused bytes, but the checksum covers them
    blocks_.span()[at] ^= std::byte{1};
    EXPECT_NE(WhyNot(), "") << at;
    blocks_.span()[at] ^= std::byte{1};
  }
}

TEST_F(ExtentHeaderTest, OlderVersion_IsALostWrite) {
  EXPECT_THAT(WhyNot({.owner = 3, .version = 42}), HasSubstr("a write was lost"));
}

TEST_F(ExtentHeaderTest, AnotherOwner_IsRefused) {
  EXPECT_THAT(WhyNot({.owner = 4, .version = 41}), HasSubstr("version 41 of 3"));
}

TEST_F(ExtentHeaderTest, AnotherFile_IsRefused) {
  EXPECT_THAT(WhyNot(kKey, 8), HasSubstr("belongs to another file"));
}

// One half is of the new write, and the other half of the one before.
TEST_F(ExtentHeaderTest, TornWrite_IsFoundWhereverItWasCut) {
  Blocks older(blocks_.span().size());
  older.Fill(2);
  SealExtent(kFile, {.owner = 3, .version = 40},
             {.extent = older.span(), .payload_bytes = kPayload});
  for (uint64_t cut = kBlockBytes; cut < kPayload; cut += 97 * kBlockBytes) {
    std::ranges::copy(older.span().subspan(cut),
                      blocks_.span().begin() + static_cast<ptrdiff_t>(cut));
    EXPECT_NE(WhyNot(), "") << cut;
    blocks_.Fill(1);
    SealExtent(kFile, kKey, contents());
  }
}

TEST_F(ExtentHeaderTest, NewSpace_IsBlankAndHasNoVersion) {
  blocks_.Fill(0);
  EXPECT_TRUE(IsBlank(contents()));
  EXPECT_THAT(WhyNot(), HasSubstr("nothing was ever written"));
}

TEST_F(ExtentHeaderTest, PiecesInAnyOrder_GiveTheSameHeader) {
  Blocks other(blocks_.span().size());
  other.Fill(1);
  const ForEach backwards = [](size_t count, const std::function<void(size_t)>& body) {
    while (count > 0) body(--count);
  };
  SealExtent(kFile, kKey, {.extent = other.span(), .payload_bytes = kPayload}, backwards);
  const uint64_t header = ExtentHeaderBytes(kPayload);
  EXPECT_TRUE(std::ranges::equal(other.span().first(header), blocks_.span().first(header)));
  EXPECT_TRUE(CheckExtent(kFile, kKey, contents(), backwards).ok());
}

TEST(ExtentHeaderBytes, LargePayloads_HaveMoreBlocks) {
  EXPECT_EQ(ExtentHeaderBytes(1), kBlockBytes);
  EXPECT_EQ(ExtentHeaderBytes(uint64_t{1} << 30), 2 * kBlockBytes);  // 1024 checksums
}

}  // namespace
}  // namespace geminid::disk
