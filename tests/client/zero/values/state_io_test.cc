#include "client/zero/values/state_io.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "client/src/session_internal.h"
#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class StateIoTest : public RoomsTest {
 protected:
  void SetUp() override {
    RoomsTest::SetUp();
    auto links = RankLinks::Connect(session_.get(), ranks_.get(), setup_->parameters,
                                    setup_->options, setup_->layout, [](uint32_t) { return ""; });
    ASSERT_TRUE(links.ok()) << links.status();
    links_ = *std::move(links);
    auto store = StateStore::Create(session_.get(), setup_->layout, {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    io_.emplace(*setup_, store_.get(), links_.get());
  }

  // Reads the first elements.
  std::vector<float> Read(ParameterId id, uint64_t elements) {
    std::vector<float> values(elements);
    const auto pieces = io_->PiecesOf(id, 0, elements);
    EXPECT_TRUE(pieces.ok()) << pieces.status();
    EXPECT_TRUE(io_->Read(*pieces, StateKind::kMaster, 0, values).ok());
    return values;
  }

  std::unique_ptr<RankLinks> links_;
  std::unique_ptr<StateStore> store_;
  std::optional<StateIo> io_;
};

TEST_F(StateIoTest, ValuesThatWereGiven_AreReadByShardsAndWhole) {
  absl::Status filled;
  const auto fill = [](ParameterId id, std::span<float> values) {
    std::ranges::fill(values, 1.5f + static_cast<float>(id));
    return absl::OkStatus();
  };
  ASSERT_TRUE(io_->Initialize(fill, &filled).ok());
  EXPECT_TRUE(filled.ok());
  EXPECT_THAT(Read(ParameterId{1}, 10), Each(2.5f));
  const auto whole = io_->ReadParameter(ParameterId{2});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->size(), static_cast<size_t>(kSize));
  EXPECT_THAT(*whole, Each(3.5f));
}

TEST_F(StateIoTest, FillThatFails_LeavesTheRestAloneAndItsRankIsNamed) {
  absl::Status filled;
  const auto fill = [](ParameterId id, uint64_t, std::span<float> values) {
    if (id == ParameterId{1}) return absl::UnavailableError("no file");
    std::ranges::fill(values, 7.0f);
    return absl::OkStatus();
  };
  ASSERT_TRUE(io_->InitializeShards(fill, &filled).ok());
  EXPECT_TRUE(absl::IsUnavailable(filled)) << filled;
  EXPECT_THAT(Read(ParameterId{0}, 4), Each(7.0f));
  EXPECT_THAT(Read(ParameterId{2}, 4), Each(0.0f));
  const auto first = io_->FirstWithout(filled);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, 0u);
  EXPECT_EQ(*io_->FirstWithout(absl::OkStatus()), std::nullopt);
}

TEST_F(StateIoTest, ElementsBehindTheParameter_AreRefusedByItsName) {
  const auto pieces = io_->PiecesOf(ParameterId{1}, kSize - 1, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(pieces.status())) << pieces.status();
  EXPECT_THAT(std::string(pieces.status().message()), HasSubstr("16383 to 16385 of 'b'"));
  EXPECT_TRUE(io_->ShardOf(ParameterId{3}).empty());
  EXPECT_FALSE(io_->Check(ParameterId{3}, StateKind::kMaster).ok());
}

TEST_F(StateIoTest, Gradients_AreKeptDividedByTheScale) {
  const auto pieces = io_->PiecesOf(ParameterId{0}, 3, 2);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_TRUE(io_->WriteGradient(*pieces, 3, 4.0, std::vector<float>{8, -2}).ok());
  std::vector<float> values(2);
  ASSERT_TRUE(io_->ReadGradient(*pieces, 3, 1.0, values).ok());
  EXPECT_EQ(values, (std::vector<float>{2, -0.5}));
  ASSERT_TRUE(io_->ReadGradient(*pieces, 3, 4.0, values).ok());
  EXPECT_EQ(values, (std::vector<float>{8, -2}));
}

TEST_F(StateIoTest, StateThatWasWritten_IsNothingForASuccessorToGoOnFrom) {
  store_->SetResumable(true);
  const auto pieces = io_->PiecesOf(ParameterId{0}, 0, 1);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_TRUE(io_->Write(*pieces, StateKind::kMaster, 0, std::vector<float>{1}).ok());
  EXPECT_EQ(CommitSegmentOf(*session_)->header.resumable.load(), 0u);
}

}  // namespace
}  // namespace geminid::zero
