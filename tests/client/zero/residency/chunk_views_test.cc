#include "client/zero/residency/chunk_views.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "client/device/device.h"
#include "client/src/session_internal.h"
#include "tests/client/zero/is_there.h"
#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kBytes = 64 << 10;
constexpr std::byte kMark{0x5a};

// Two chunks, each at a view of its own.
class ChunkViewsTest : public RoomsTest {
 protected:
  void SetUp() override {
    RoomsTest::SetUp();
    device_ = DeviceOf(*session_);
    ASSERT_TRUE(device_->ReserveViews(2 * kBytes).ok());
  }

  std::byte& ViewOf(size_t chunk) { return device_->views()[chunk * kBytes]; }
  std::byte InArena(uint64_t offset) { return device_->HostAddress(device_->base())[offset]; }

  device::Device* device_ = nullptr;
  const std::vector<uint64_t> at_ = {0, kBytes};
};

TEST_F(ChunkViewsTest, ShownChunk_IsWhatLiesInTheArena) {
  ChunkViews views(device_, at_, {kBytes, kBytes});
  ASSERT_TRUE(views.Show(1, kBytes).ok());
  ViewOf(1) = kMark;
  EXPECT_EQ(InArena(kBytes), kMark);
  ASSERT_TRUE(views.Hide(1).ok());
  EXPECT_FALSE(IsThere(&ViewOf(1)));
  EXPECT_TRUE(views.Hide(1).ok()) << "it is hidden already";
}

// After the engine has failed, a stream may still access these addresses, and must do no harm.
TEST_F(ChunkViewsTest, KeptViews_StayAndOnesThatWereNotShownHaveMemory) {
  ChunkViews views(device_, at_, {kBytes, kBytes});
  ASSERT_TRUE(views.Show(0, 0).ok());
  EXPECT_FALSE(IsThere(&ViewOf(1)));
  views.KeepAll(/*fill=*/true);
  EXPECT_TRUE(IsThere(&ViewOf(1)));
  ASSERT_TRUE(views.Hide(0).ok());
  ViewOf(0) = kMark;
  EXPECT_EQ(InArena(0), kMark);
}

TEST_F(ChunkViewsTest, WithoutViews_NothingIsMapped) {
  const std::vector<uint64_t> none;
  ChunkViews views(device_, none, {});
  EXPECT_TRUE(views.Show(7, 0).ok());
  EXPECT_TRUE(views.Hide(7).ok());
}

}  // namespace
}  // namespace geminid::zero
