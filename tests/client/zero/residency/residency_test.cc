#include "client/zero/residency/residency.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

// Three chunks of 64 KiB in an arena of 256 KiB. Nothing has moved yet.
class ResidencyTest : public RoomsTest {
 protected:
  void SetUp() override {
    RoomsTest::SetUp();
    director_.emplace(std::vector<Director::Chunk>(3, {.bytes = 64 << 10}));
    residency_.emplace(*setup_, *director_, owners_, Residency::Calls{});
  }

  const std::vector<uint32_t> owners_ = {0, 1, 2};
  std::optional<Director> director_;
  std::optional<Residency> residency_;
};

TEST_F(ResidencyTest, ChunksBesideTheStateAndWorkspace_FitToTheLastByte) {
  EXPECT_TRUE(residency_->CheckFits({0, 1, 2}, 64 << 10).ok());
  residency_->SetStateBytes(64 << 10);
  EXPECT_TRUE(residency_->CheckFits({0, 1, 2}, 0).ok());
  const absl::Status status = residency_->CheckFits({0, 1, 2}, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("192 KiB of gathered weights"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("(of 'a' and 2 more)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("64.0 KiB of state"));
}

// Chunks that operators hold stay, for any request.
TEST_F(ResidencyTest, WhatIsHeld_CountsBesideWhatIsAskedFor) {
  (void)director_->BeginOperator(/*evaluate=*/true, std::vector<uint32_t>{0});
  const absl::Status status = residency_->CheckFits({1}, 224 << 10);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("(of 'a' and 1 more)"));
}

TEST_F(ResidencyTest, StateOfTheOptimizer_IsMeasuredAsModelOnce) {
  residency_->SetStateBytes(64 << 10);
  residency_->SetStateBytes(128 << 10);
  EXPECT_EQ(residency_->meter().Read().model_bytes, 128u << 10);
  EXPECT_FALSE(residency_->AnythingLies());
}

}  // namespace
}  // namespace geminid::zero
