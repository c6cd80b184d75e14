#include "client/checkpoint/checked_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/temporary_folder.h"

namespace geminid::checkpoint {
namespace {

// Two files, of which the first has a header of 4 bytes and then a tensor in two pieces.
class CheckedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("a", a_);
    Write("b", b_);
    Checksums sums;
    Add(&sums, 0, a_, 8, a_.size());
    Add(&sums, 0, a_, 4, 8);
    Add(&sums, 0, a_, 0, 4);
    Add(&sums, 1, b_, 0, 4);
    Add(&sums, 1, b_, 4, b_.size());
    pieces_ = sums.Take();
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(absl::StrCat(folder_, "/", name)) << text;
  }
  static void Add(Checksums* sums, uint32_t file, const std::string& text, size_t from, size_t to) {
    sums->Add(file, from, std::as_bytes(std::span(text).subspan(from, to - from)));
  }

  // Reads as one rank. `given` gets each range of `wanted` at its place.
  absl::Status Read(int rank, int ranks, std::vector<FileRange> wanted,
                    std::vector<std::string>* given) const {
    absl::StatusOr<CheckedFiles> files = CheckedFiles::Open(folder_, {{"a", "b"}, pieces_});
    if (!files.ok()) return files.status();
    if (absl::Status status = files->CheckBeginnings(); !status.ok()) return status;
    given->clear();
    for (const FileRange& range : wanted)
      given->push_back(std::string(range.end - range.begin, '?'));
    CheckedFiles::Reading reading;
    reading.rank = rank;
    reading.ranks = ranks;
    reading.tensors = tensors_;
    reading.wanted = std::move(wanted);
    reading.take = [&](size_t i, uint64_t offset, std::span<const std::byte> bytes) {
      (*given)[i].replace(offset, bytes.size(), reinterpret_cast<const char*>(bytes.data()),
                          bytes.size());
      return absl::OkStatus();
    };
    return files->Read(reading);
  }

  // The number of ranks, of so many that want nothing, that find an error.
  int RanksThatObject(int ranks) const {
    int found = 0;
    std::vector<std::string> given;
    for (int rank = 0; rank < ranks; ++rank) found += Read(rank, ranks, {}, &given).ok() ? 0 : 1;
    return found;
  }
  absl::Status ReadAlone() const {
    std::vector<std::string> given;
    return Read(0, 1, {}, &given);
  }

  const std::string a_ = "headthe first file";
  const std::string b_ = "the second";
  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::vector<CheckedRange> pieces_;
  std::vector<CheckedFiles::Tensor> tensors_;
};

TEST_F(CheckedFilesTest, Unaltered_IsSoundForAnyNumberOfRanks) {
  for (int ranks = 1; ranks <= 5; ++ranks) EXPECT_EQ(RanksThatObject(ranks), 0) << ranks;
}

TEST_F(CheckedFilesTest, WhatNobodyWants_IsDividedAmongTheRanksAndAllCompared) {
  Write("b", "the secomd");
  for (int ranks = 1; ranks <= 5; ++ranks) EXPECT_EQ(RanksThatObject(ranks), 1) << ranks;
}

TEST_F(CheckedFilesTest, Beginnings_AreComparedByAllRanks) {
  Write("b", "thE second");
  for (int ranks = 1; ranks <= 5; ++ranks) EXPECT_EQ(RanksThatObject(ranks), ranks) << ranks;
}

TEST_F(CheckedFilesTest, EveryAlteredByte_IsFoundAndItsFileNamed) {
  for (size_t i = 0; i < b_.size(); ++i) {
    std::string text = b_;
    text[i] ^= 1;
    Write("b", text);
    const absl::Status status = ReadAlone();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i;
    EXPECT_NE(std::string(status.message()).find("/b'"), std::string::npos) << status;
  }
}

TEST_F(CheckedFilesTest, ShorterOrLongerFile_IsFound) {
  for (const std::string& text : {a_.substr(1), a_ + "!", std::string()}) {
    Write("a", text);
    EXPECT_EQ(ReadAlone().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST_F(CheckedFilesTest, BytesWithNoOrTwoChecksums_AreFound) {
  const std::vector<CheckedRange> sound = pieces_;
  for (size_t i = 0; i < sound.size(); ++i) {
    pieces_ = sound;
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(ReadAlone().code(), absl::StatusCode::kDataLoss) << i;
    pieces_ = sound;
    pieces_.push_back(sound[i]);
    EXPECT_EQ(ReadAlone().code(), absl::StatusCode::kDataLoss) << i;
  }
}

TEST_F(CheckedFilesTest, FileWithoutChecksums_IsNotFound) {
  const absl::StatusOr<CheckedFiles> files = CheckedFiles::Open(folder_, {{"a", "b"}, pieces_});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->Find("b").value_or(9), 1u);
  EXPECT_EQ(files->Find("c").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckedFilesTest, WantedBytes_AreGivenWhateverPiecesTheyLieIn) {
  std::vector<std::string> given;
  const std::vector<FileRange> wanted = {{0, 6, 8}, {0, 9, 12}, {0, 14, 18}, {1, 2, 7}};
  ASSERT_TRUE(Read(0, 1, wanted, &given).ok());
  EXPECT_EQ(given, (std::vector<std::string>{a_.substr(6, 2), a_.substr(9, 3), a_.substr(14, 4),
                                             b_.substr(2, 5)}));
}

// Together the ranks want the whole tensor, so each byte is read by a rank that wants it.
TEST_F(CheckedFilesTest, AlteredTensor_IsFoundByWhoWantsItAndNamed) {
  tensors_ = {{{0, 4, a_.size()}, "weight"}};
  std::string text = a_;
  text[6] ^= 1;
  Write("a", text);
  std::vector<std::string> given;
  const absl::Status first = Read(0, 2, {{0, 4, 7}}, &given);
  EXPECT_EQ(first.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(first.message()).find("'weight'"), std::string::npos) << first;
  EXPECT_TRUE(Read(1, 2, {{0, 8, a_.size()}}, &given).ok());
  // This range of the altered piece is not altered itself.
  EXPECT_FALSE(Read(1, 2, {{0, 7, a_.size()}}, &given).ok());
}

// Blocks end anywhere in pieces, and pieces end anywhere in ranges.
TEST_F(CheckedFilesTest, LargeFileInUnevenPieces_IsGivenAsItIs) {
  std::mt19937_64 random(7);
  std::string text(3'000'001, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  Write("b", text);
  Checksums sums;
  Add(&sums, 0, a_, 0, a_.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min<size_t>(text.size(), at + 1 + random() % 1'500'000);
    Add(&sums, 1, text, at, end);
    at = end;
  }
  pieces_ = sums.Take();
  tensors_ = {{{1, 0, text.size()}, "all"}};
  for (int ranks = 1; ranks <= 3; ++ranks) {
    std::string together;
    for (int rank = 0; rank < ranks; ++rank) {
      const uint64_t begin = text.size() * static_cast<size_t>(rank) / static_cast<size_t>(ranks);
      const uint64_t end = text.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(ranks);
      std::vector<std::string> given;
      ASSERT_TRUE(Read(rank, ranks, {{1, begin, end}}, &given).ok());
      together += given[0];
    }
    EXPECT_TRUE(together == text) << ranks;
  }
}

TEST_F(CheckedFilesTest, ErrorOfWhoTakes_EndsTheReading) {
  const absl::StatusOr<CheckedFiles> files = CheckedFiles::Open(folder_, {{"a", "b"}, pieces_});
  ASSERT_TRUE(files.ok());
  int calls = 0;
  CheckedFiles::Reading reading;
  reading.wanted = {{0, 4, 18}};
  reading.take = [&](size_t, uint64_t, std::span<const std::byte>) {
    ++calls;
    return absl::UnavailableError("no");
  };
  EXPECT_EQ(files->Read(reading).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace geminid::checkpoint
