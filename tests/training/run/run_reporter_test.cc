#include "training/run/run_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kBatch = 4;

class RunReporterTest : public ::testing::Test {
 protected:
  RunReporterTest() {
    options_.batch = kBatch;
    options_.schedule.steps = 10;
    options_.progress = ProgressMode::kLines;
    context_.write_stderr = [this](const std::string& text) { said_ += text; };
  }

  void Add(RunReporter* reporter, double loss) {
    reporter->AddStep({.loss = loss, .micro_batches = 1, .seconds = 1}, BatchCourse(options_, 1));
  }

  TrainOptions options_;
  RankContext context_;
  std::string said_;
};

TEST_F(RunReporterTest, OfLossesThatAreNotFinite_CountsAllAndSaysTheFirst) {
  RunReporter reporter(options_, context_);
  reporter.report().first_step = 5;
  Add(&reporter, 3);
  EXPECT_EQ(said_, "");
  Add(&reporter, std::numeric_limits<double>::infinity());
  EXPECT_THAT(said_, HasSubstr("the loss of step 7 is not finite"));
  said_.clear();
  Add(&reporter, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(said_, "");
  EXPECT_EQ(reporter.report().non_finite_losses, 2u);
  EXPECT_EQ(reporter.report().first_non_finite_step, 7u);
}

TEST_F(RunReporterTest, OfAnotherRank_SaysNothingForAll) {
  context_.info.rank = 1;
  RunReporter reporter(options_, context_);
  Add(&reporter, std::numeric_limits<double>::infinity());
  reporter.WarnOnce("all ranks know this");
  EXPECT_EQ(reporter.PhaseWriter(), nullptr);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(reporter.report().non_finite_losses, 1u);
}

TEST_F(RunReporterTest, OfARunThatFollowsNoise_HasItsChanges) {
  options_.follows_noise = AccumulateRange{.least = 1, .most = 8};
  RunReporter reporter(options_, context_);
  reporter.report().following.emplace();
  const BatchCourse course(options_, 1);
  reporter.AddStep({.loss = 1, .micro_batches = 1}, course);
  reporter.AddStep({.loss = 1,
                    .micro_batches = 2,
                    .change = BatchChange{.step = 2, .from = 2, .to = 4, .batch = kBatch}},
                   course);
  const AutoBatchReport& following = *reporter.report().following;
  EXPECT_THAT(following.step_micro_batches, ElementsAre(1, 2));
  ASSERT_EQ(following.changes.size(), 1u);
  EXPECT_EQ(following.steps, course.steps());
  EXPECT_THAT(said_, HasSubstr(ChangeWords(following.changes[0])));
}

// Training continues, and the error is reported when the run ends.
TEST_F(RunReporterTest, WhoseLogFails_SaysSoOnceAndKeepsTheError) {
  options_.log = "/proc/self/oom_score_adj";  // can be opened, but refuses lines of JSON
  RunReporter reporter(options_, context_);
  ASSERT_TRUE(reporter.OpenLog().ok());
  EXPECT_TRUE(reporter.CheckLog().ok());
  Add(&reporter, 3);
  reporter.Log({.loss = 3});
  EXPECT_THAT(said_, HasSubstr("the log ends before step 1: "));
  EXPECT_THAT(std::string(reporter.CheckLog().message()), HasSubstr("the run's log has failed"));
  EXPECT_THAT(std::string(reporter.log_status().message()), Not(HasSubstr("the run's log")));
  said_.clear();
  Add(&reporter, 3);
  reporter.Log({.loss = 3});
  EXPECT_EQ(said_, "");
}

TEST_F(RunReporterTest, OfAMesh_KeepsWhatWasChosen) {
  RunReporter reporter(options_, context_);
  RunMesh found;
  found.choice = MeshChoice{.mesh = "data=2", .why = "it is fastest"};
  found.warning = "it goes over hosts";
  reporter.SayMesh(found);
  EXPECT_THAT(said_, HasSubstr("parallel auto: it is fastest"));
  EXPECT_THAT(said_, HasSubstr("geminid-train: it goes over hosts"));
  EXPECT_EQ(reporter.report().choice->mesh, "data=2");
  EXPECT_EQ(reporter.report().mesh_warning, "it goes over hosts");
}

}  // namespace
}  // namespace geminid::trainer
