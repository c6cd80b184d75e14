#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/unique_fd.h"
#include "tests/base/temporary_folder.h"

namespace geminid::base {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ReadFile, UpToItsLimit_IsTheWholeFile) {
  const TemporaryFolder folder;
  const std::string text(200'000, 'x');
  const std::string path = folder.Write("a", text);
  EXPECT_EQ(*ReadFile(path, text.size()), text);
  EXPECT_EQ(*ReadFile(folder.Write("empty", ""), 0), "");
  const absl::Status larger = ReadFile(path, text.size() - 1).status();
  EXPECT_EQ(larger.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(larger.message()), StartsWith(path + ": larger than"));
}

TEST(ReadFile, OfWhatIsNoFile_SaysWhy) {
  const TemporaryFolder folder;
  const absl::Status missing = ReadFile(folder / "a", 10).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(folder / "a"));
  EXPECT_THAT(std::string(ReadFile(folder.path(), 10).status().message()), HasSubstr("a folder"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadFile(folder / "pipe", 10).status().message()), HasSubstr("a pipe"));
  EXPECT_THAT(std::string(ReadFile("/dev/zero", 10).status().message()), HasSubstr("a device"));
}

TEST(ReadFile, OfAGigabyteOfZeros_IsRefusedByItsSize) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("a", "x");
  std::filesystem::resize_file(path, uintmax_t{1} << 30);
  EXPECT_EQ(ReadFile(path, 10).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadKernelFile, OfOneThatIsNotThere_IsEmpty) {
  EXPECT_NE(ReadKernelFile("/proc/self/status"), "");
  EXPECT_EQ(ReadKernelFile("/proc/self/no-such-file"), "");
}

TEST(ReplaceFile, OverAFile_ReplacesItAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("r.json", "old and longer");
  ASSERT_TRUE(ReplaceFile(path, "new").ok());
  EXPECT_EQ(*ReadFile(path, 100), "new");
  EXPECT_EQ(folder.Entries(), 1u);
  struct stat facts = {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0644u);
}

// Root may rename a file over a pipe, or over /dev/null.
TEST(ReplaceFile, UnderAUmask_IsReadableByThoseWhomItAllows) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  const absl::Status status = ReplaceFile(folder / "f", "new");
  ::umask(before);
  ASSERT_TRUE(status.ok()) << status;
  struct stat facts = {};
  ASSERT_EQ(::stat((folder / "f").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0640u);
}

TEST(ReplaceFile, APipe_IsWrittenToAndStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(ReplaceFile(path, "nobody reads").ok());
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(reader.valid());
  EXPECT_TRUE(ReplaceFile(path, "new").ok());
  char text[8] = {};
  EXPECT_EQ(::read(reader.get(), text, sizeof(text)), 3);
  EXPECT_STREQ(text, "new");
  struct stat facts = {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_TRUE(S_ISFIFO(facts.st_mode));
  EXPECT_EQ(folder.Entries(), 1u);
}

TEST(ReplaceFile, WhereNoneCanBe_NamesTheFileAndLeavesNothing) {
  const TemporaryFolder folder;
  const absl::Status missing = ReplaceFile(folder / "no/r.json", "new");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no/r.json"));
  EXPECT_FALSE(ReplaceFile(folder.path(), "a folder is not replaced").ok());
  EXPECT_EQ(folder.Entries(), 0u);
}

}  // namespace
}  // namespace geminid::base
