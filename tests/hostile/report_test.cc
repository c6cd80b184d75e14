#include "tests/hostile/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"

namespace geminid::hostile {
namespace {

using ::testing::HasSubstr;

Report Good() {
  Report report;
  report.calm.jobs = 1;
  report.calm.step_seconds = {1.0, 1.0, 1.0};
  report.calm.answer_milliseconds = {1};
  report.hostile.jobs = 2;
  report.hostile.step_seconds = {1.05, 1.05, 3.0};
  report.hostile.answer_milliseconds = {1, 99};
  report.end_milliseconds = 100;
  report.book_readings = 10;
  report.attacks = {{"calls that hang", 7}};
  return report;
}

bool AllMet(const Report& report) {
  for (const Finding& finding : Judge(report, true)) {
    if (!finding.met) return false;
  }
  return true;
}

TEST(Judge, WhatMeetsEveryTarget_IsMet) {
  EXPECT_TRUE(AllMet(Good()));
  EXPECT_DOUBLE_EQ(StepRatio(Good()), 1.05);
}

TEST(Judge, EachTargetThatIsMissed_IsSaid) {
  const std::vector<std::function<void(Report*)>> changes = {
      [](Report* report) { report->hostile.jobs_with_other_bits = 1; },
      [](Report* report) { report->hostile.jobs = 0; },
      [](Report* report) { report->hostile.answer_milliseconds.push_back(101); },
      [](Report* report) { report->hostile.answer_milliseconds.clear(); },
      [](Report* report) { report->hostile.unanswered = 1; },
      [](Report* report) { report->end_milliseconds = 2001; },
      [](Report* report) { report->end_milliseconds.reset(); },
      [](Report* report) { report->books_add_up = false; },
      [](Report* report) { report->unaccounted_bytes = 1; },
      [](Report* report) { report->left_bytes = 1; },
      [](Report* report) { report->spoils = 1; },
      [](Report* report) { report->dead_strangers = 1; },
      [](Report* report) {
        report->hostile.step_seconds = {1.2, 1.2};
      },
      [](Report* report) { report->calm.step_seconds.clear(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Report report = Good();
    changes[i](&report);
    EXPECT_FALSE(AllMet(report)) << i;
    EXPECT_THAT(ToTable(report, Judge(report, true)), HasSubstr("MISSED")) << i;
  }
}

TEST(Judge, ShortRun_IsNotHeldToWhatNeedsAQuietMachine) {
  Report report = Good();
  report.hostile.step_seconds = {2.0};
  report.hostile.answer_milliseconds = {500};
  for (const Finding& finding : Judge(report, false)) EXPECT_TRUE(finding.met) << finding.what;
}

TEST(Judge, SlowAnswerOfAShortRun_CountsIfItIsSlowEachTimeThatTheSameIsTried) {
  Report report = Good();
  report.hostile.answer_milliseconds = {2001};
  EXPECT_TRUE(IsTooSlow(report.hostile, false));
  report.hostile.again_milliseconds = {2500};
  EXPECT_TRUE(IsTooSlow(report.hostile, false));
  EXPECT_THAT(ToTable(report, Judge(report, false)), HasSubstr("again 2500.0 ms"));
  report.hostile.again_milliseconds.push_back(2000);
  EXPECT_FALSE(IsTooSlow(report.hostile, false));
  EXPECT_TRUE(IsTooSlow(report.hostile, true));
}

TEST(ToJson, Report_CanBeRead) {
  base::JsonValue value;
  base::JsonError error;
  const std::string text = ToJson(Good(), Judge(Good(), true));
  EXPECT_TRUE(base::ParseJson(text, &value, &error)) << error.problem << " in " << text;
  EXPECT_THAT(text, HasSubstr("\"calls that hang\": 7"));
}

}  // namespace
}  // namespace geminid::hostile
