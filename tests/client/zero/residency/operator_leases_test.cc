#include "client/zero/residency/operator_leases.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One chunk on the device.
class StaysTest : public RoomsTest {
 protected:
  void SetUp() override {
    RoomsTest::SetUp();
    const auto made =
        session_->Allocate({{"chunk", ChunkKind::kGatheredWeight, 64 << 10, /*has_home=*/false}});
    ASSERT_TRUE(made.ok()) << made.status();
    chunks_ = {made->front().id};
    ASSERT_TRUE(session_->AllocateExtent(chunks_[0], 0, true).Wait(absl::Seconds(30)).ok());
    ASSERT_TRUE(session_->Publish(chunks_[0]).Wait(absl::Seconds(30)).ok());
    leases_ = std::make_unique<OperatorLeases>(session_.get(), chunks_, names_);
    leases_->Ask(0);
  }

  const std::function<std::string(uint32_t)> names_ = [](uint32_t) { return "the chunk"; };
  std::vector<ChunkId> chunks_;
  std::unique_ptr<OperatorLeases> leases_;
  OperatorLeases::Requests requests_;
};

TEST_F(StaysTest, ChunkThatIsHeldBeforeItComes_IsLeasedWhenItHasCome) {
  ASSERT_TRUE(leases_->Hold(0, &requests_).ok());
  EXPECT_THAT(requests_, IsEmpty());
  EXPECT_FALSE(leases_->HasArrived(0));
  ASSERT_TRUE(leases_->Arrive(0, &requests_).ok());
  EXPECT_TRUE(leases_->HasArrived(0));
  EXPECT_EQ(requests_.size(), 1u);  // to change its state to COMPUTE
  leases_->Release(0, ChunkState::kHold, &requests_);
  EXPECT_EQ(requests_.size(), 2u);
  EXPECT_TRUE(leases_->Leave(0));
}

TEST_F(StaysTest, ChunkThatAStreamStillUses_LeavesWhenTheStreamHasPassed) {
  ASSERT_TRUE(leases_->Arrive(0, &requests_).ok());
  ASSERT_TRUE(leases_->Hold(0, &requests_).ok());
  const uint64_t point = leases_->AddPoint();
  const uint64_t other = leases_->AddPoint();
  leases_->NoteUse(0, point);
  leases_->Release(0, ChunkState::kHold, &requests_);
  EXPECT_EQ(requests_.size(), 1u) << "the stream has the lease";
  EXPECT_FALSE(leases_->Unused(0));
  leases_->EndForOperators(0);
  EXPECT_TRUE(leases_->Unused(0)) << "the next stay's";
  EXPECT_FALSE(leases_->OldestUnused(0));
  EXPECT_FALSE(leases_->Leave(0));
  EXPECT_THAT(leases_->Reach(other, &requests_), IsEmpty());
  EXPECT_THAT(leases_->Reach(point, &requests_), ElementsAre(0));
  EXPECT_EQ(requests_.size(), 2u);
  EXPECT_TRUE(leases_->NoPointIsOpen());
}

TEST_F(StaysTest, ChunkThatIsNotThere_CannotBeHeld) {
  ASSERT_TRUE(session_->Drop(chunks_[0]).Wait(absl::Seconds(30)).ok());
  ASSERT_TRUE(leases_->Arrive(0, &requests_).ok());
  const absl::Status status = leases_->Hold(0, &requests_);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
}

}  // namespace
}  // namespace geminid::zero
