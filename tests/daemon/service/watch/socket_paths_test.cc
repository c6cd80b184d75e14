#include "daemon/service/watch/socket_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "daemon/os/unix_socket.h"
#include "tests/base/temporary_folder.h"

namespace geminid::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SocketPathsTest : public ::testing::Test {
 protected:
  base::UniqueFd Listen() const { return *os::ListenStream(path_, 0600, 1); }

  const base::TemporaryFolder folder_;
  const std::string path_ = folder_ / "s";
  SocketPaths paths_;
};

TEST_F(SocketPathsTest, SocketThatIsStillThere_IsNotLost) {
  const base::UniqueFd listener = Listen();
  paths_.Add(path_);
  EXPECT_THAT(paths_.Lost(), IsEmpty());
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  EXPECT_THAT(paths_.Lost(), IsEmpty()) << "its mode is its operator's affair";
}

TEST_F(SocketPathsTest, SocketThatWasRemoved_IsLost) {
  const base::UniqueFd listener = Listen();
  paths_.Add(path_);
  std::filesystem::remove(path_);
  EXPECT_THAT(paths_.Lost(), ElementsAre(AllOf(HasSubstr(path_), HasSubstr("was removed"),
                                               HasSubstr("restart the daemon"))));
}

TEST_F(SocketPathsTest, SocketOfAnotherProcessInItsPlace_IsLost) {
  const base::UniqueFd listener = Listen();
  paths_.Add(path_);
  std::filesystem::remove(path_);
  const base::UniqueFd another = Listen();
  EXPECT_THAT(paths_.Lost(), ElementsAre(HasSubstr("was replaced")));
}

TEST_F(SocketPathsTest, FolderThatWasRemoved_LosesItsSocket) {
  std::filesystem::create_directory(folder_ / "inner");
  const base::UniqueFd listener = *os::ListenStream(folder_ / "inner/s", 0600, 1);
  paths_.Add(folder_ / "inner/s");
  std::filesystem::remove_all(folder_ / "inner");
  EXPECT_THAT(paths_.Lost(), ElementsAre(HasSubstr("was removed")));
}

TEST_F(SocketPathsTest, SocketThatWasNeverSeen_IsNotLost) {
  paths_.Add(path_);
  EXPECT_THAT(paths_.Lost(), IsEmpty());
}

}  // namespace
}  // namespace geminid::service
