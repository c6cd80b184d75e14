#include "training/launch/course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CourseOptions Options(int ranks) {
  return {.ranks = ranks,
          .new_job_id = [jobs = 0]() mutable { return absl::StrCat("job", ++jobs); }};
}

StartEnd Killed(std::optional<Handover> handover = std::nullopt) {
  return {.failed = true,
          .may_pass = true,
          .failed_at = absl::UnixEpoch() + absl::Seconds(7),
          .why = "rank 1 was killed",
          .handover = handover};
}

StartEnd Refused(std::optional<Handover> handover = std::nullopt) {
  StartEnd end = Killed(handover);
  end.may_pass = false;
  return end;
}

StartEnd HandedOver(uint64_t number, int before, int after) {
  return {.handover =
              Handover{.number = number, .ranks_before = before, .ranks_after = after, .step = 12}};
}

Handover StateOf(int before, int after) {
  return {.number = 1, .ranks_before = before, .ranks_after = after, .step = 12};
}

TEST(Course, OfARunThatIsDone_Ends) {
  Course course(Options(2));
  EXPECT_EQ(course.start().ranks, 2);
  EXPECT_FALSE(course.start().restarts.comes_back());
  EXPECT_EQ(course.After({}), std::nullopt);
}

TEST(Course, AfterADeath_StartsAgainAsOftenAsItMay) {
  CourseOptions options = Options(2);
  options.restarts = 1;
  Course course(options);
  EXPECT_TRUE(course.start().restarts.keeps());
  const auto words = course.After(Killed());
  ASSERT_TRUE(words.has_value());
  EXPECT_THAT(*words, HasSubstr("rank 1 was killed; all ranks are started again (1 of 1)"));
  EXPECT_EQ(course.start().job_id, "job1");
  EXPECT_EQ(course.start().restarts.count, 1);
  EXPECT_FALSE(course.start().restarts.keeps());
  EXPECT_EQ(course.start().restarts.failed_at, absl::UnixEpoch() + absl::Seconds(7));
  EXPECT_EQ(course.After(Killed()), std::nullopt);
}

TEST(Course, AfterWhatAnotherStartMeetsAgainOrWhoeverRunsItWants_Ends) {
  CourseOptions options = Options(2);
  options.restarts = 3;
  options.min_ranks = 1;
  Course course(options);
  EXPECT_EQ(course.After(Refused()), std::nullopt);
  StartEnd stopped = Killed();
  stopped.signal = 15;
  EXPECT_EQ(course.After(stopped), std::nullopt);
  StartEnd done = Killed();
  done.done = true;
  EXPECT_EQ(course.After(done), std::nullopt);
}

// The new ranks' job has another id, so no session resumes what the old ranks left in the daemon.
TEST(Course, AfterAHandover_StartsAsManyRanksAsItIsFor) {
  Course course(Options(2));
  const auto words = course.After(HandedOver(1, 2, 4));
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(*words, "2 ranks handed over the state after step 12; 4 ranks will go on from it");
  EXPECT_EQ(course.start().ranks, 4);
  EXPECT_EQ(course.start().job_id, "job2");
  EXPECT_THAT(course.start().restarts.jobs_before, ElementsAre("job1"));
  EXPECT_FALSE(course.start().restarts.is_first());
  EXPECT_EQ(course.start().restarts.count, 0);
  // The ranks have already taken the state that is still there.
  StartEnd done = HandedOver(1, 2, 4);
  EXPECT_EQ(course.After(done), std::nullopt);
}

TEST(Course, OfRanksThatDieAfterTheHandover_IsThatOfTheHandover) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(Killed(StateOf(2, 1))).has_value());
  EXPECT_EQ(course.start().ranks, 1);
}

TEST(Course, OfASignalDuringAHandover_PassesItOnToTheNewRanks) {
  Course course(Options(2));
  StartEnd end = HandedOver(1, 2, 4);
  end.signal = 2;
  ASSERT_TRUE(course.After(end).has_value());
  EXPECT_EQ(course.start().restarts.signal_before, 2);
}

// None of these starts has saved yet.
TEST(Course, OfASignalDuringAHandover_IsToldToEveryStartUntilTheRunHasEnded) {
  Course course(Options(2));
  StartEnd end = HandedOver(1, 2, 4);
  end.signal = 15;
  ASSERT_TRUE(course.After(end).has_value());
  ASSERT_TRUE(course.After(Killed(StateOf(2, 4))).has_value());
  EXPECT_EQ(course.start().restarts.signal_before, 15);
  ASSERT_TRUE(course.After(Refused(StateOf(2, 4))).has_value());
  EXPECT_EQ(course.start().ranks, 2);
  EXPECT_EQ(course.start().restarts.signal_before, 15);
  EXPECT_EQ(course.After({}), std::nullopt);
}

TEST(Course, OfASignalToNewRanksThatDieWithTheStateStillThere_HasOthersSaveIt) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(HandedOver(1, 2, 4)).has_value());
  StartEnd end = Killed(StateOf(2, 4));
  end.signal = 15;
  ASSERT_TRUE(course.After(end).has_value());
  EXPECT_EQ(course.start().restarts.signal_before, 15);
  end.handover.reset();  // the ranks have taken the state
  EXPECT_EQ(course.After(end), std::nullopt);
}

TEST(Course, OfNewRanksThatDieWithTheStateStillThere_TriesAgainAndThenGoesBack) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(HandedOver(1, 2, 4)).has_value());
  for (int i = 0; i < 2; ++i) {
    const auto again = course.After(Killed(StateOf(2, 4)));
    ASSERT_TRUE(again.has_value());
    EXPECT_THAT(*again, HasSubstr("from the state that was handed over to them"));
    EXPECT_EQ(course.start().ranks, 4);
    EXPECT_EQ(course.start().job_id, "job2");
  }
  const auto back = course.After(Killed(StateOf(2, 4)));
  ASSERT_TRUE(back.has_value());
  EXPECT_THAT(*back, HasSubstr("the run goes on with 2 ranks as before"));
  EXPECT_EQ(course.start().ranks, 2);
  // The first of the new jobs may have left something, too, so both earlier jobs are listed.
  EXPECT_THAT(course.start().restarts.jobs_before, ElementsAre("job1", "job2"));
  EXPECT_EQ(course.start().job_id, "job3");
  ASSERT_TRUE(course.After(HandedOver(2, 2, 4)).has_value());
  EXPECT_THAT(course.start().restarts.jobs_before, ElementsAre("job3"));
}

TEST(Course, OfNewRanksThatCannotStart_GoesBackAtOnce) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(HandedOver(1, 2, 4)).has_value());
  ASSERT_TRUE(course.After(Refused(StateOf(2, 4))).has_value());
  EXPECT_EQ(course.start().ranks, 2);
  // The old ranks cannot start either.
  EXPECT_EQ(course.After(Refused(StateOf(2, 4))), std::nullopt);
}

StartEnd Moved(uint64_t number, const std::string& host) {
  StartEnd end = HandedOver(number, 2, 2);
  end.handover->host = host;
  return end;
}

TEST(Course, AfterAHandoverForAnotherHost_StartsThereAndStaysThere) {
  CourseOptions options = Options(2);
  options.restarts = 1;
  Course course(options);
  EXPECT_EQ(course.start().host, "");
  const auto words = course.After(Moved(1, "beta"));
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(*words,
            "2 ranks handed over the state after step 12; 2 ranks will go on from it at beta");
  EXPECT_EQ(course.start().host, "beta");
  EXPECT_EQ(course.start().job_id, "job2") << "nobody takes up what the ranks before left";
  ASSERT_TRUE(course.After(HandedOver(2, 2, 4)).has_value());  // a change of ranks at beta
  EXPECT_EQ(course.start().host, "beta");
  ASSERT_TRUE(course.After(Killed()).has_value());
  EXPECT_EQ(course.start().host, "beta");
}

TEST(Course, OfAHostThatCannotHaveTheRun_GoesBackWithAsManyRanks) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(Moved(1, "beta")).has_value());
  const auto back = course.After(Refused(StateOf(2, 2)));
  ASSERT_TRUE(back.has_value());
  EXPECT_THAT(*back, HasSubstr("the run goes on with 2 ranks as before, at the host before"));
  EXPECT_EQ(course.start().host, "");
  EXPECT_EQ(course.start().ranks, 2);
  EXPECT_THAT(course.start().restarts.jobs_before, ElementsAre("job1", "job2"));
  EXPECT_EQ(course.After(Refused(StateOf(2, 2))), std::nullopt) << "nor can it stay";
}

TEST(Course, OfRanksThatDieAtTheNewHostWithTheStateStillThere_TriesThereFirst) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(Moved(1, "beta")).has_value());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(course.After(Killed(StateOf(2, 2))).has_value());
    EXPECT_EQ(course.start().host, "beta");
  }
  ASSERT_TRUE(course.After(Killed(StateOf(2, 2))).has_value());
  EXPECT_EQ(course.start().host, "");
}

TEST(Course, OfAMoveFromAHostThatTheRunMovedTo_GoesBackToThat) {
  Course course(Options(2));
  ASSERT_TRUE(course.After(Moved(1, "beta")).has_value());
  ASSERT_TRUE(course.After(Moved(2, "gamma")).has_value());
  EXPECT_EQ(course.start().host, "gamma");
  ASSERT_TRUE(course.After(Refused(Handover{.number = 2, .ranks_before = 2, .ranks_after = 2}))
                  .has_value());
  EXPECT_EQ(course.start().host, "beta");
}

TEST(Course, WithoutARestartLeft_HandsOverToFewerRanks) {
  CourseOptions options = Options(4);
  options.restarts = 1;
  options.min_ranks = 2;
  options.fits = [](int ranks) { return ranks != 3; };
  Course course(options);
  ASSERT_TRUE(course.After(Killed()).has_value());
  EXPECT_EQ(course.start().restarts.shrink_to, 0);
  EXPECT_TRUE(course.start().restarts.keeps());
  const auto words = course.After(Killed());
  ASSERT_TRUE(words.has_value());
  EXPECT_THAT(*words, HasSubstr("no restart is left; the run goes on with 2 ranks from what 4"));
  EXPECT_EQ(course.start().ranks, 4);
  EXPECT_EQ(course.start().restarts.shrink_to, 2);
  EXPECT_FALSE(course.start().restarts.has_shrunk) << "it still has 4 ranks";
  EXPECT_EQ(course.start().job_id, "job1");  // it resumes what was left
  ASSERT_TRUE(course.After(HandedOver(1, 4, 2)).has_value());
  EXPECT_EQ(course.start().ranks, 2);
  EXPECT_EQ(course.start().restarts.shrink_to, 0);
  EXPECT_TRUE(course.start().restarts.has_shrunk);
  EXPECT_FALSE(course.start().restarts.keeps());  // no smaller number of ranks is allowed
  EXPECT_TRUE(course.start().restarts.failed_at.has_value());
  EXPECT_EQ(course.After(Killed()), std::nullopt);
}

TEST(Course, OfRanksThatCannotEvenHandOver_EndsAfterSomeTries) {
  CourseOptions options = Options(2);
  options.min_ranks = 1;
  Course course(options);
  int starts = 0;
  while (course.After(Killed()).has_value()) ++starts;
  EXPECT_EQ(starts, 3);
}

}  // namespace
}  // namespace geminid::trainer
