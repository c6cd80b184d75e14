#include "client/checkpoint/checksums.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

class Checksums_OfAFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    Checksums sums;
    Add(&sums, 0, a_, 4, a_.size());
    Add(&sums, 0, a_, 0, 4);
    Add(&sums, 1, b_, 0, b_.size());
    pieces_ = sums.Take();
  }

  static void Add(Checksums* sums, uint32_t file, const std::string& text, size_t from, size_t to) {
    sums->Add(file, from, std::as_bytes(std::span(text).subspan(from, to - from)));
  }

  const std::string a_ = "the first file";
  const std::string b_ = "the second";
  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::vector<CheckedRange> pieces_;
};

TEST_F(Checksums_OfAFolder, WrittenThenRead_AreTheSame) {
  const std::string path = absl::StrCat(folder_, "/", ChecksumsName(0, 2));
  ASSERT_TRUE(WriteChecksums(path, {"a", "b"}, pieces_).ok());
  const absl::StatusOr<CheckedFileRanges> read = ReadChecksums(path);
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
