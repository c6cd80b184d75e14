#include "training/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

std::string Load(const std::string& path) {
  const auto text = Text::Load({path});
  if (!text.ok()) return std::string(text.status().message());
  std::vector<int32_t> tokens((*text)->tokens());
  EXPECT_TRUE((*text)->Read(0, tokens).ok());
  std::string bytes;
  for (const int32_t token : tokens) bytes.push_back(static_cast<char>(token));
  return bytes;
}

TEST(LoadText, OfAFile_IsItsBytes) {
  const base::TemporaryFolder folder;
  const std::string bytes("a\x01\xff\n");
  EXPECT_EQ(Load(folder.Write("t", bytes)), bytes);
}

TEST(LoadText, OfADirectory_IsItsFilesSortedByPathWithoutHiddenOnes) {
  const base::TemporaryFolder folder;
  folder.Write("b/2", "second,");
  folder.Write("c", "third");
  folder.Write("a", "first,");
  folder.Write(".hidden", "x");
  folder.Write(".git/config", "x");
  EXPECT_EQ(Load(folder.path()), "first,second,third");
}

TEST(LoadText, OfWhatCannotBeRead_NamesThePathAndWhatToDo) {
  const base::TemporaryFolder folder;
  EXPECT_EQ(Text::Load({folder / "none"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Load(folder / "none"), testing::HasSubstr("none' does not exist; give --text"));
  EXPECT_THAT(Load(folder.path()), testing::HasSubstr("holds no files"));
  EXPECT_THAT(Load(folder.Write("empty", "")), testing::HasSubstr("is empty"));
  EXPECT_THAT(Load("/dev/null"), testing::HasSubstr("neither a file nor a directory"));
}

TEST(LoadText, OfSeveralPaths_IsTheirBytesAndAListOfTheFiles) {
  const base::TemporaryFolder folder;
  folder.Write("d/a", "one,");
  folder.Write("d/b", "two,");
  const std::vector<std::string> paths = {folder.Write("c", "three,"), folder / "d"};
  const auto text = Text::Load(paths);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->tokens(), 14u);
  EXPECT_EQ(Describe((*text)->listing()), "3 files, 14 bytes: " + folder / "c" + " 6, " +
                                              folder / "d/a" + " 4, " + folder / "d/b" + " 4");
}

TEST(LoadText, OfAPipe_SaysWhyAndWhatToDo) {
  const base::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "p").c_str(), 0600), 0);
  EXPECT_THAT(Load(folder / "p"), testing::HasSubstr("every rank reads the data; write it to a file"));
}

TEST(DescribeListing, OfANameWithANewline_StaysOnOneLine) {
  const DataListing listing = {.files = {{.path = "a\nb", .bytes = 3}}, .left_out = {}};
  EXPECT_EQ(Describe(listing), "1 file, 3 bytes: a?b 3");
}

TEST(LoadText, WithAFileThatIsNoText_NamesItAndItsKind) {
  const base::TemporaryFolder folder;
  folder.Write("a", "text");
  folder.Write("picture", std::string("x\0y", 3));
  EXPECT_THAT(Load(folder.path()),
              testing::HasSubstr("picture' is not text: its byte 1 is zero. Remove it"));
  EXPECT_THAT(Load(folder.Write("t.gz", std::string("\x1f\x8b\x08\0", 4))),
              testing::HasSubstr("t.gz' is not text: its byte 3 is zero. It looks like gzip"));
  EXPECT_THAT(Load(folder.Write("wide", std::string("\xff\xfe" "a\0", 4))),
              testing::HasSubstr("It looks like UTF-16; save it as UTF-8"));
}

TEST(LoadText, BeyondTheLimit_IsRefusedBeforeItIsRead) {
  const base::TemporaryFolder folder;
  const std::string path = folder.Write("large", "");
  std::filesystem::resize_file(path, kTextBytesMax + 1);  // sparse: no blocks on disk
  EXPECT_THAT(Load(path), testing::HasSubstr("larger than"));
}

// At that moment only the first block is in memory.
TEST(LoadText, OfALargeFileThatIsNoText_IsRefusedAtItsFirstBlock) {
  const base::TemporaryFolder folder;
  const std::string path = folder.Write("large", "no text");
  std::filesystem::resize_file(path, uint64_t{1} << 30);  // sparse: no blocks on disk
  int blocks = 0;
  const auto text = Text::Load({path}, [&](uint64_t, uint64_t) { ++blocks; });
  EXPECT_THAT(std::string(text.status().message()), testing::HasSubstr("its byte 7 is zero"));
  EXPECT_EQ(blocks, 0);
}

TEST(LoadText, OfSeveralBlocks_TellsHowFarItIsAndChecksEach) {
  const base::TemporaryFolder folder;
  std::string bytes(size_t{9} << 20, 'a');
  const std::vector<std::string> paths = {folder.Write("a", "a"), folder.Write("b", bytes)};
  std::vector<std::pair<uint64_t, uint64_t>> far;
  const auto text =
      Text::Load(paths, [&](uint64_t done, uint64_t of) { far.emplace_back(done, of); });
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->tokens(), bytes.size() + 1);
  EXPECT_EQ(far.front(), std::pair(uint64_t{1}, uint64_t{bytes.size() + 1}));
  EXPECT_EQ(far.back(), std::pair(uint64_t{bytes.size() + 1}, uint64_t{bytes.size() + 1}));
  EXPECT_EQ(far.size(), 4u);
  bytes[bytes.size() - 2] = '\0';
  EXPECT_THAT(Load(folder.Write("b", bytes)), testing::HasSubstr("its byte 9437182 is zero"));
}

}  // namespace
}  // namespace geminid::trainer
