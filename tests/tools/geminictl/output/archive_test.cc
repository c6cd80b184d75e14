#include "tools/geminictl/output/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/base/temporary_folder.h"

namespace geminid::ctl {
namespace {

// Whether python3, which has its own reader, finds this expression true for the archive `t`.
bool PythonAgrees(const std::string& archive, const std::string& assertion) {
  const geminid::base::TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tar.gz";
  std::ofstream(path, std::ios::binary) << archive;
  const std::string command =
      "python3 -c \"import sys, tarfile; t = tarfile.open(sys.argv[1], 'r:gz'); " + assertion +
      "\" " + path;
  return std::system(command.c_str()) == 0;
}

TEST(TarGz, Files_AreReadBackByAnotherReader) {
  const std::string block(512, 'x');
  const auto archive = TarGz(
      {{"a/empty", ""}, {"a/block", block}, {"a/odd", "zero\n"}, {"a/z", std::string(9, '\0')}},
      1700000000);
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_TRUE(PythonAgrees(*archive,
                           "assert t.getnames() == ['a/empty', 'a/block', 'a/odd', 'a/z']; "
                           "assert t.extractfile('a/empty').read() == b''; "
                           "assert t.extractfile('a/block').read() == b'x' * 512; "
                           "assert t.extractfile('a/odd').read() == b'zero' + bytes([10]); "
                           "assert t.extractfile('a/z').read() == bytes(9); "
                           "m = t.getmember('a/odd'); "
                           "assert (m.mode, m.uid, m.mtime) == (0o400, 0, 1700000000)"));
  EXPECT_FALSE(PythonAgrees(*archive, "assert t.getnames() == []"));
}

TEST(TarGz, SameFiles_AreTheSameBytes) {
  EXPECT_EQ(*TarGz({{"a", "b"}}, 5), *TarGz({{"a", "b"}}, 5));
  EXPECT_NE(*TarGz({{"a", "b"}}, 5), *TarGz({{"a", "c"}}, 5));
}

TEST(TarGz, NameThatDoesNotFit_IsRefused) {
  EXPECT_TRUE(TarGz({{std::string(kMaxArchivedName, 'n'), ""}}, 0).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(TarGz({{std::string(kMaxArchivedName + 1, 'n'), ""}}, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(TarGz({{"", ""}}, 0).status()));
}

}  // namespace
}  // namespace geminid::ctl
