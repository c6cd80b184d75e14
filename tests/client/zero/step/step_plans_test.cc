#include "client/zero/step/step_plans.h"

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;

// Three chunks, of which the second is frozen. Nothing has moved yet.
class StepPlansTest : public RoomsTest {
 protected:
  void SetUp() override {
    RoomsTest::SetUp();
    std::vector<Parameter> parameters = setup_->parameters;
    parameters[1].trainable = false;
    const Options options = setup_->options;
    setup_.emplace(session_.get(), ranks_.get(), parameters, options);
    ASSERT_TRUE(setup_->MakeLayout().ok());
    std::vector<GradientBook::Tensor> tensors;
    for (uint32_t t = 0; t < 3; ++t) {
      tensors.push_back({parameters[t].name, t, parameters[t].trainable, 1, false});
    }
    book_.emplace(std::move(tensors), 3);
    director_.emplace(std::vector<Director::Chunk>(3, {.bytes = 64 << 10}));
    residency_.emplace(*setup_, *director_, book_->owners(), Residency::Calls{});
    auto store = StateStore::Create(session_.get(), setup_->layout, {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto links = RankLinks::Connect(session_.get(), ranks_.get(), setup_->parameters,
                                    setup_->options, setup_->layout, [](uint32_t) { return ""; });
    ASSERT_TRUE(links.ok()) << links.status();
    links_ = *std::move(links);
    plans_.emplace(*setup_, StepPlans::Parts{.links = links_.get(),
                                             .director = &*director_,
                                             .residency = &*residency_,
                                             .store = store_.get(),
                                             .book = &*book_,
                                             .move_state = {}});
  }

  std::optional<GradientBook> book_;
  std::optional<Director> director_;
  std::optional<Residency> residency_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<RankLinks> links_;
  std::optional<StepPlans> plans_;
};

TEST_F(StepPlansTest, BeforeTheFirstPlan_TrainedChunksAreUpdatedInTheirOrder) {
  EXPECT_EQ(plans_->plan(), nullptr);
  EXPECT_THAT(plans_->update_order(), ElementsAre(0, 2));
}

// The sample is taken with all the workspace there is. Only a plan can be outgrown.
TEST_F(StepPlansTest, WorkspaceThatGrowsWhileNoPlanIsFollowed_OutgrowsNone) {
  plans_->BeginMicroBatch(/*first_of_step=*/true);
  plans_->NoteWorkspace(128 << 10);
  plans_->NoteWorkspaceGrew();
  EXPECT_FALSE(plans_->workspace_grew());
}

}  // namespace
}  // namespace geminid::zero
