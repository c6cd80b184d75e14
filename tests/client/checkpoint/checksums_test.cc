#include "client/checkpoint/checksums.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

class Checksums_OfAFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("a", a_);
    Write("b", b_);
    Checksums sums;
    Add(&sums, 0, a_, 4, a_.size());
    Add(&sums, 0, a_, 0, 4);
    Add(&sums, 1, b_, 0, b_.size());
    pieces_ = sums.Take();
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(absl::StrCat(folder_, "/", name)) << text;
  }
  static void Add(Checksums* sums, uint32_t file, const std::string& text, size_t from, size_t to) {
    sums->Add(file, from, std::as_bytes(std::span(text).subspan(from, to - from)));
  }
  // By two ranks; the first error.
  absl::Status VerifyBoth() const {
    absl::Status status = Verify(folder_, {"a", "b"}, pieces_, 0, 2);
    status.Update(Verify(folder_, {"a", "b"}, pieces_, 1, 2));
    return status;
  }

  const std::string a_ = "the first file";
  const std::string b_ = "the second";
  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::vector<Piece> pieces_;
};

TEST_F(Checksums_OfAFolder, Unaltered_IsSound) { EXPECT_TRUE(VerifyBoth().ok()) << VerifyBoth(); }

TEST_F(Checksums_OfAFolder, DividedAmongAnyNumberOfRanks_AreAllCompared) {
  Write("b", "the secomd");
  for (int ranks = 1; ranks <= 5; ++ranks) {
    int found = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      found += Verify(folder_, {"a", "b"}, pieces_, rank, ranks).ok() ? 0 : 1;
    }
    EXPECT_EQ(found, 1) << ranks;
  }
}

TEST_F(Checksums_OfAFolder, EveryAlteredByte_IsFoundAndItsFileNamed) {
  for (size_t i = 0; i < b_.size(); ++i) {
    std::string text = b_;
    text[i] ^= 1;
    Write("b", text);
    const absl::Status status = VerifyBoth();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i;
    EXPECT_NE(std::string(status.message()).find("/b'"), std::string::npos) << status;
  }
}

TEST_F(Checksums_OfAFolder, ShorterOrLongerFile_IsFound) {
  Write("a", a_.substr(1));
  EXPECT_FALSE(VerifyBoth().ok());
  Write("a", a_ + "!");
  EXPECT_FALSE(VerifyBoth().ok());
}

TEST_F(Checksums_OfAFolder, BytesWithoutAChecksum_AreFound) {
  pieces_.erase(pieces_.begin() + 1);
  EXPECT_FALSE(VerifyBoth().ok());
}

TEST_F(Checksums_OfAFolder, WrittenThenRead_AreTheSame) {
  const std::string path = absl::StrCat(folder_, "/", ChecksumsName(0, 2));
  ASSERT_TRUE(WriteChecksums(path, {"a", "b"}, pieces_).ok());
  const absl::StatusOr<ReadPieces> read = ReadChecksums(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->files, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(read->pieces.size(), pieces_.size());
  EXPECT_EQ(read->pieces[2].crc32c, pieces_[2].crc32c);
  EXPECT_EQ(read->pieces[0].offset, 4u);
}

TEST_F(Checksums_OfAFolder, PieceOfNoFile_IsRefused) {
  const std::string path = absl::StrCat(folder_, "/", ChecksumsName(0, 2));
  ASSERT_TRUE(WriteChecksums(path, {"a"}, pieces_).ok());
  EXPECT_EQ(ReadChecksums(path).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace geminid::checkpoint
