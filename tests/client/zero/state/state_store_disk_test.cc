// A store with state on disk: the space that it returns, and the errors after damage.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "client/disk/striped_files.h"
#include "client/src/session_internal.h"
#include "client/zero/state/state_store.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

class StateStoreDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 4 << 20;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    const std::vector<TensorShape> shapes(3, {16384, true});
    layout_ = *MakeLayout(shapes, {.chunk_elements = 16384});
    StateStoreOptions options;
    options.on_disk = {true, true, true};
    options.disk =
        DiskStateOptions{.disk = {.folders = {folder_.path()}}, .name = "rank", .kept = true};
    absl::StatusOr<std::unique_ptr<StateStore>> store =
        StateStore::Create(session_.get(), layout_, options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  std::string Path() const { return folder_ / disk::NameOfFiles("rank"); }
  // The number of this process's descriptors for the file, even if it was removed.
  int OpenFiles() const {
    int open = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
      if (file.find(Path()) != std::string::npos) ++open;
    }
    return open;
  }
  absl::Status Use(uint32_t granule, bool writes) {
    return store_->UseOnDisk(granule, writes, [](const StateView&) { return absl::OkStatus(); });
  }
  bool IsResumable() const { return CommitSegmentOf(*session_)->header.resumable.load() == 1; }

  geminid::testing::DaemonEnv env_;
  base::TemporaryFolder folder_;
  std::unique_ptr<Session> session_;
  Layout layout_;
  std::unique_ptr<StateStore> store_;
};

// The next store of this rank may need the same space.
TEST_F(StateStoreDiskTest, Free_GivesTheSpaceOfTheFilesBackAtOnce) {
  EXPECT_EQ(OpenFiles(), 1);
  EXPECT_TRUE(store_->Free().ok());
  EXPECT_EQ(OpenFiles(), 0);
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(StateStoreDiskTest, StateThatCannotBeRead_IsNotLeftToASuccessor) {
  store_->SetResumable(true);
  EXPECT_TRUE(Use(0, /*writes=*/true).ok());
  EXPECT_TRUE(store_->disk()->Flush().ok());
  EXPECT_TRUE(IsResumable());
  std::filesystem::resize_file(Path(), disk::kStripeBytes);
  const absl::Status status = Use(1, /*writes=*/false);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_FALSE(IsResumable());
}

// HostBytesOf must be exact: the daemon charges neither more nor less.
TEST_F(StateStoreDiskTest, HostMemoryOfEveryMixture_IsWhatWasReckoned) {
  ASSERT_TRUE(store_->Free().ok());
  for (const std::vector<bool>& on_disk :
       {std::vector<bool>(), {false, false, true}, {true, false, true}, {true, true, true}}) {
    SCOPED_TRACE(::testing::PrintToString(on_disk));
    StateStoreOptions options = {.accumulate = true, .workspace_bytes = 5000, .on_disk = on_disk};
    options.disk = DiskStateOptions{.disk = {.folders = {folder_.path()}}};
    const absl::StatusOr<uint64_t> before = HostRoom(*session_);
    const auto store = StateStore::Create(session_.get(), layout_, options);
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::StatusOr<uint64_t> after = HostRoom(*session_);
    ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
    EXPECT_EQ(*before - *after, HostBytesOf(layout_, options));
    const uint64_t file_bytes = (*store)->disk() == nullptr ? 0 : (*store)->disk()->file_bytes();
    EXPECT_EQ(file_bytes, DiskFileBytes(ListState(layout_, options).DiskShapes(), 1));
    ASSERT_TRUE((*store)->Free().ok());
  }
}

}  // namespace
}  // namespace geminid::zero
