#include "training/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr DataWords kWords = {.flag = "--text", .what = "text", .files = "text files"};

class DataFiles : public testing::Test {
 protected:
  DataPaths Find(const std::vector<std::string>& paths) {
    const auto found = FindDataFiles(paths, kWords, "");
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : DataPaths();
  }
  std::string Refusal(const std::string& path) {
    const auto found = FindDataFiles({path}, kWords, "");
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << found.status();
    return std::string(found.status().message());
  }
  void Link(const std::string& to, const std::string& name) {
    fs::create_symlink(to, folder_ / name);
  }

  const base::TemporaryFolder folder_;
};

TEST_F(DataFiles, InALinkedFolder_AreReadInItsPlace) {
  folder_.Write("d/a.txt", "x");
  folder_.Write("d/z.txt", "x");
  folder_.Write("other/b.txt", "x");
  Link("../other", "d/more");
  const DataPaths found = Find({folder_ / "d"});
  EXPECT_THAT(found.files,
              ElementsAre(folder_ / "d/a.txt", folder_ / "d/more/b.txt", folder_ / "d/z.txt"));
  EXPECT_THAT(found.left_out, IsEmpty());
}

TEST_F(DataFiles, InAFolderThatIsLinkedTwice_AreReadOnceAndTheRestIsSaid) {
  folder_.Write("d/a/1.txt", "x");
  Link("a", "d/b");
  const DataPaths found = Find({folder_ / "d"});
  EXPECT_THAT(found.files, ElementsAre(folder_ / "d/a/1.txt"));
  EXPECT_THAT(found.left_out, ElementsAre("'" + (folder_ / "d/b") + "' was read already, as '" +
                                          (folder_ / "d/a") + "'"));
}

TEST_F(DataFiles, UnderTwoNames_AreReadOnceAndTheRestIsSaid) {
  folder_.Write("d/a.txt", "x");
  Link("a.txt", "d/b.txt");
  const DataPaths found = Find({folder_ / "d", folder_ / "d/a.txt"});
  EXPECT_THAT(found.files, ElementsAre(folder_ / "d/a.txt"));
  EXPECT_THAT(found.left_out, ElementsAre(HasSubstr("b.txt' was read already, as"),
                                          HasSubstr("a.txt' was read already, as")));
}

TEST_F(DataFiles, BelowALinkToAFolderThatHoldsIt_AreAnErrorThatNamesTheLink) {
  folder_.Write("d/e/a.txt", "x");
  Link("..", "d/e/up");
  EXPECT_THAT(Refusal(folder_ / "d"), HasSubstr("has the link '" + (folder_ / "d/e/up") +
                                                "' to the directory '" + (folder_ / "d") +
                                                "' that holds it; remove the link"));
}

TEST_F(DataFiles, WithALinkThatLeadsNowhere_AreAnErrorThatNamesIt) {
  folder_.Write("d/a.txt", "x");
  Link("gone", "d/b.txt");
  EXPECT_THAT(Refusal(folder_ / "d"), HasSubstr("has the link '" + (folder_ / "d/b.txt") +
                                                "' to 'gone', which does not exist"));
}

TEST_F(DataFiles, BesideAPipe_AreReadAndThePipeIsSaid) {
  folder_.Write("d/a.txt", "x");
  ASSERT_EQ(mkfifo((folder_ / "d/pipe").c_str(), 0600), 0);
  const DataPaths found = Find({folder_ / "d"});
  EXPECT_THAT(found.files, ElementsAre(folder_ / "d/a.txt"));
  EXPECT_THAT(found.left_out,
              ElementsAre("'" + (folder_ / "d/pipe") + "' is neither a file nor a directory"));
  fs::remove(folder_ / "d/a.txt");
  EXPECT_THAT(Refusal(folder_ / "d"), HasSubstr("holds no files"));
}

TEST_F(DataFiles, OfSeveralPaths_AreThoseOfEachInTurn) {
  folder_.Write("b", "x");
  folder_.Write("a", "x");
  EXPECT_THAT(Find({folder_ / "b", folder_ / "a"}).files,
              ElementsAre(folder_ / "b", folder_ / "a"));
}

}  // namespace
}  // namespace geminid::trainer
