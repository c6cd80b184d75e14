#include <regex>
#include <string>

#include "gtest/gtest.h"
#include "tests/base/python_reads.h"
#include "tests/tools/sim/traces.h"
#include "tools/sim/compare.h"
#include "tools/sim/memory_picture.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/prediction.h"
#include "tools/sim/step_picture.h"
#include "tools/sim/timeline.h"

namespace geminid::sim {
namespace {

using base::PythonReads;

SimulationResult RunModel() {
  const planner::Trace trace = RandomTrace(TraceKind::kModel, 3);
  Machine machine = LinkAlone(trace);
  machine.ranks_per_node = 2;
  SimulationOptions options;
  options.keeps_events = true;
  const auto schedule = MakeSchedule(trace, {}, SimulatedPlannerOptions());
  EXPECT_TRUE(schedule.ok());
  absl::StatusOr<SimulationResult> run =
      Simulate(machine, WithoutUpdates(trace), *schedule, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : SimulationResult{};
}

TEST(ToSvg, AnyRun_IsXmlWithTheSimulatorsBytes) {
  const SimulationResult run = RunModel();
  const std::string svg = ToSvg({"a < b & c", run.arena_bytes, run.moments});
  EXPECT_TRUE(PythonReads(svg, "xml.parse(f)"));
  EXPECT_FALSE(PythonReads(svg.substr(0, svg.size() - 8), "xml.parse(f)"));
  std::vector<DeviceBytes> drawn(run.moments.size());
  const std::regex title("<title>moment (\\d+) (\\w+) (\\d+)</title>");
  for (std::sregex_iterator match(svg.begin(), svg.end(), title), end; match != end; ++match) {
    for (size_t owner = 0; owner < kOwners; ++owner) {
      if ((*match)[2] != Name(static_cast<Owner>(owner))) continue;
      drawn[std::stoul((*match)[1])][owner] = std::stoull((*match)[3]);
    }
  }
  EXPECT_EQ(drawn, run.moments);
}

TEST(ToSvg, HeightsOfTheRectangles_AreInProportionToTheBytes) {
  DeviceBytes moment{};
  moment[static_cast<size_t>(Owner::kWeights)] = 25;
  moment[static_cast<size_t>(Owner::kActivations)] = 75;
  const std::string svg = ToSvg({"", 100, {moment}});
  const std::regex height("height=\"([0-9.]+)\" fill=\"#\\w+\"><title>");
  std::vector<double> heights;
  for (std::sregex_iterator match(svg.begin(), svg.end(), height), end; match != end; ++match) {
    heights.push_back(std::stod((*match)[1]));
  }
  ASSERT_EQ(heights.size(), 2u);
  EXPECT_NEAR(heights[1] / heights[0], 3, 1e-6);
}

TEST(TimelineJson, AnyRun_IsJsonWithEverySpanAndSample) {
  const SimulationResult run = RunModel();
  const std::string json = TimelineJson(run);
  const size_t named = 2 * (1 + kTracks);
  EXPECT_TRUE(PythonReads(json, "assert len(json.load(f)['traceEvents']) == " +
                                    std::to_string(named + run.spans.size() + run.samples.size())));
  EXPECT_FALSE(PythonReads(json, "assert json.load(f)['traceEvents'] == []"));
}

TEST(TimelineJson, SpansOfOneTrack_DoNotOverlap) {
  const SimulationResult run = RunModel();
  for (const Track track : {Track::kCompute, Track::kWait, Track::kUp, Track::kDown}) {
    core::Time last;
    for (const Span& span : run.spans) {
      if (span.track != track || span.rank != 1) continue;
      EXPECT_GE(span.begin, last) << Name(track);
      last = span.end;
    }
  }
}

TEST(ReportedOfFirstRank, Step_BeginsAtZeroAndIsAsLongAsItsSpans) {
  const SimulationResult run = RunModel();
  const SimulationResult step = ReportedOfFirstRank(run);
  ASSERT_EQ(step.ranks.size(), 1u);
  double computed = 0;
  for (const Span& span : step.spans) {
    EXPECT_EQ(span.rank, 0);
    EXPECT_GE(span.begin.nanoseconds(), 0);
    if (span.track == Track::kCompute) computed += (span.end - span.begin).seconds();
  }
  EXPECT_NEAR(computed, run.ranks[0].busy_seconds[static_cast<size_t>(Track::kCompute)], 1e-9);
  EXPECT_EQ(step.samples.front().at, core::Time());
  EXPECT_LT(step.spans.size(), run.spans.size() / 2);  // two ranks, without the warm-up
}

TEST(StepSvg, AnyStep_IsXmlWithItsLanesAndTheArena) {
  const SimulationResult step = ReportedOfFirstRank(RunModel());
  const std::string svg = StepSvg("a < b", step);
  EXPECT_TRUE(PythonReads(svg, "xml.parse(f)"));
  EXPECT_NE(svg.find(">compute</text>"), std::string::npos);
  EXPECT_NE(svg.find("moment 0, "), std::string::npos);
  EXPECT_NE(svg.find("device memory: "), std::string::npos);
  EXPECT_EQ(svg.find(">disk</text>"), std::string::npos);  // this track has no events
}

TEST(StepSvg, SpansThatCannotBeToldApart_AreDrawnAsOneThatCountsThem) {
  SimulationResult step;
  step.arena_bytes = 100;
  step.step_seconds = {1};
  step.samples.emplace_back();
  for (int64_t i = 0; i < 1000; ++i) {
    step.spans.push_back({0, Track::kCompute, "moment", core::Time::FromNanoseconds(i),
                          core::Time::FromNanoseconds(i + 1)});
  }
  const std::string svg = StepSvg("", step);
  EXPECT_NE(svg.find(" and 999 more</title>"), std::string::npos);
  EXPECT_LT(svg.size(), 5000u);
}

TEST(Prediction, JsonOfIt_HasTheSumsOfTheRuns) {
  const planner::Trace trace = ChainTrace(6, 3 * kMiB, 1e-3);
  const auto schedule = MakeSchedule(trace, {}, SimulatedPlannerOptions());
  ASSERT_TRUE(schedule.ok());
  Machine machine = LinkAlone(trace);
  machine.compute_noise = 0.1;
  const auto prediction = Predict(machine, WithoutUpdates(trace), *schedule, {}, 4);
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_LE(prediction->step_p50_seconds, prediction->step_p99_seconds);
  EXPECT_EQ(prediction->up_bytes, BytesOf(trace, *schedule).up);
  const std::string up = std::to_string(static_cast<uint64_t>(prediction->up_bytes));
  EXPECT_TRUE(PythonReads(ToJson(*prediction), "assert json.load(f)['up_bytes'] == " + up));
  // A step consists of computation and waiting.
  double waits = 0;
  for (const double seconds : prediction->wait_seconds) waits += seconds;
  EXPECT_NEAR(prediction->compute_seconds + waits, prediction->step_mean_seconds, 1e-6);
}

}  // namespace
}  // namespace geminid::sim
