#include "tools/trainer/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(LoadText, WithAFileThatIsNoText_NamesItAndItsKind) {
  const base::TemporaryFolder folder;
  folder.Write("a", "text");
  folder.Write("picture", std::string("x\0y", 3));
  EXPECT_THAT(Load(folder.path()),
              testing::HasSubstr("picture' is no text: its byte 1 is zero. Remove it"));
  EXPECT_THAT(Load(folder.Write("t.gz", std::string("\x1f\x8b\x08\0", 4))),
              testing::HasSubstr("t.gz' is no text: its byte 3 is zero. It looks like gzip"));
  EXPECT_THAT(Load(folder.Write("wide", std::string("\xff\xfe" "a\0", 4))),
              testing::HasSubstr("It looks like UTF-16; save it as UTF-8"));
}

TEST(LoadText, BeyondTheLimit_IsRefusedBeforeItIsRead) {
  const base::TemporaryFolder folder;
  const std::string path = folder.Write("large", "");
  std::filesystem::resize_file(path, kTextBytesMax + 1);  // without blocks
  EXPECT_THAT(Load(path), testing::HasSubstr("larger than"));
}

}  // namespace
}  // namespace geminid::trainer
