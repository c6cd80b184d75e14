#include "client/disk/stripes.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace geminid::disk {
namespace {

constexpr Stripes kThree = {.files = 3, .stripe_bytes = 8192, .header_bytes = 4096};

TEST(CutIntoStripes, RangeWithinOneUnit_IsOnePiece) {
  const std::vector<StripeRange> pieces = CutIntoStripes(kThree, 8192 + 4096, 4096);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].file, 1u);
  EXPECT_EQ(pieces[0].file_offset, 4096u + 4096u);
  EXPECT_EQ(pieces[0].at, 0u);
  EXPECT_EQ(pieces[0].bytes, 4096u);
}

TEST(CutIntoStripes, RangeOfManyUnits_GoesRoundTheFilesInOrder) {
  const std::vector<StripeRange> pieces = CutIntoStripes(kThree, 4096, 4 * 8192);
  ASSERT_EQ(pieces.size(), 5u);
  uint64_t at = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].file, i % 3);
    EXPECT_EQ(pieces[i].at, at);
    at += pieces[i].bytes;
  }
  EXPECT_EQ(at, 4u * 8192);
  EXPECT_EQ(pieces[3].file_offset, 4096u + 8192u);
  EXPECT_EQ(pieces[4].bytes, 4096u);
}

TEST(CutIntoStripes, AllRangesTogether_HaveEachBlockOnceAndWithinTheFiles) {
  for (const uint32_t files : {1u, 2u, 5u}) {
    const Stripes stripes = {.files = files, .stripe_bytes = 8192, .header_bytes = 4096};
    constexpr uint64_t kBytes = 17 * 4096;
    std::set<std::pair<uint32_t, uint64_t>> blocks;
    for (uint64_t offset = 0; offset < kBytes; offset += 4096) {
      const StripeRange piece = CutIntoStripes(stripes, offset, 4096).front();
      EXPECT_TRUE(blocks.insert({piece.file, piece.file_offset}).second);
      EXPECT_GE(piece.file_offset, stripes.header_bytes);
      EXPECT_LE(piece.file_offset + 4096, BytesOfFile(stripes, kBytes));
    }
  }
}

TEST(CutIntoStripes, NoBytes_AreNoPieces) { EXPECT_TRUE(CutIntoStripes(kThree, 4096, 0).empty()); }

}  // namespace
}  // namespace geminid::disk
