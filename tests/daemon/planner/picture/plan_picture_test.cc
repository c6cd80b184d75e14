#include "daemon/planner/picture/plan_picture.h"

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "gtest/gtest.h"
#include "tests/base/python_reads.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

using base::PythonReads;

struct Rect {
  double x = 0, y = 0, width = 0, height = 0;
  std::string title;
};

std::vector<Rect> RectsOf(const std::string& svg) {
  const std::regex rect(
      "<rect x=\"([0-9.]+)\" y=\"([0-9.-]+)\" width=\"([0-9.]+)\" height=\"([0-9.]+)\" "
      "fill=\"#\\w+\"><title>([^<]*)</title>");
  std::vector<Rect> rects;
  for (std::sregex_iterator match(svg.begin(), svg.end(), rect), end; match != end; ++match) {
    rects.push_back({std::stod((*match)[1]), std::stod((*match)[2]), std::stod((*match)[3]),
                     std::stod((*match)[4]), (*match)[5]});
  }
  return rects;
}

// An arena of eight bytes and four moments.
PlanTimeline SmallTimeline() {
  PlanTimeline timeline;
  timeline.arena_bytes = 8;
  timeline.chunks = {{.id = 70, .size_bytes = 2}, {.id = 71, .size_bytes = 4}};
  timeline.pieces = {{0, Occupant::kWeights, 0, 0, 4}, {1, Occupant::kArriving, 2, 1, 2}};
  for (Moment t = 0; t < 4; ++t) {
    timeline.rows.push_back({.first = t,
                             .last = t,
                             .bytes = {2, t == 1 ? 4u : 0u, 0, 1},
                             .up_bytes = t == 1 ? 4u : 0u,
                             .stall_seconds = t == 2 ? 2e-3 : 0});
  }
  return timeline;
}

TEST(PlanSvg, Rectangles_LieWhereTheChunksDo) {
  const std::string svg = PlanSvg("a < b", SmallTimeline());
  EXPECT_TRUE(PythonReads(svg, "xml.parse(f)"));
  const std::vector<Rect> rects = RectsOf(svg);
  ASSERT_EQ(rects.size(), 4u) << svg;  // two stays, one load, one wait
  EXPECT_EQ(rects[0].title, "chunk 70, 2 B at 0 B: gathered weights, moments 0 to 3");
  EXPECT_EQ(rects[1].title, "chunk 71, 4 B at 2 B: arriving, moment 1");
  EXPECT_NEAR(rects[1].height, 2 * rects[0].height, 0.02);
  EXPECT_NEAR(rects[1].y + rects[1].height, rects[0].y, 0.02) << "right above";
  EXPECT_NEAR(rects[0].width, 4 * rects[1].width, 0.02);
  EXPECT_NEAR(rects[1].x - rects[0].x, rects[1].width, 0.02) << "from moment 1";
  EXPECT_EQ(rects[2].title, "moment 1: 4 B to device");
  EXPECT_NEAR(rects[2].x, rects[1].x, 0.02);
  EXPECT_EQ(rects[3].title, "moment 2: 2 ms waits");
}

TEST(PlanSvg, LineOfTheArena_IsAsFarUpAsItsBytes) {
  PlanTimeline timeline = SmallTimeline();
  const std::regex line("<line x1=\"[0-9.]+\" y1=\"([0-9.]+)\"[^>]*stroke-dasharray");
  const auto height_of_line = [&](const std::string& svg) {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(svg, match, line));
    return std::stod(match[1]);
  };
  const double full = height_of_line(PlanSvg("", timeline));
  // With more bytes than the arena has, the line is at half of the height.
  timeline.rows[3].bytes = {16, 0, 0, 0};
  const double half = height_of_line(PlanSvg("", timeline));
  EXPECT_NEAR(half - full, 45, 0.2);  // half of the 90 pixels
}

TEST(PlanSvg, AnyPlan_IsXmlThatNamesEveryStay) {
  std::mt19937_64 random(33);
  for (int i = 0; i < 5; ++i) {
    RandomShape shape;
    shape.invalidate = true;
    const Trace trace = RandomTrace(shape, random);
    const absl::StatusOr<Plan> plan = MakePlan(trace, TestOptions());
    if (!plan.ok()) continue;
    const PlanTimeline timeline = TimelineOf(trace, *plan);
    const std::string svg = PlanSvg("", timeline);
    EXPECT_TRUE(PythonReads(svg, "xml.parse(f)"));
    for (const StaySpan& piece : timeline.pieces) {
      EXPECT_NE(svg.find(PieceWords(timeline, piece)), std::string::npos);
    }
  }
}

TEST(PlanSvg, MoreStaysThanCanBeSeen_AreTheLargestAndACount) {
  PlanTimeline timeline;
  timeline.arena_bytes = 1 << 20;
  constexpr Moment kMoments = 20'000;
  timeline.chunks = {{.id = 1, .size_bytes = 4}, {.id = 2, .size_bytes = 8}};
  for (Moment t = 0; t < kMoments; ++t) {
    timeline.rows.push_back({.first = t, .last = t, .up_bytes = 1});
    timeline.pieces.push_back({t < 100 ? 1u : 0u, Occupant::kWeights, 0, t, t + 1});
  }
  const std::string svg = PlanSvg("", timeline);
  EXPECT_NE(svg.find("(16000 smaller stays are not drawn)"), std::string::npos);
  EXPECT_NE(svg.find("chunk 2, 8 B at 0 B: gathered weights, moment 99<"), std::string::npos);
  EXPECT_LT(svg.size(), 1'000'000u);
}

TEST(PlanSvg, OfNothing_IsXmlToo) {
  EXPECT_TRUE(PythonReads(PlanSvg("", PlanTimeline()), "xml.parse(f)"));
}

}  // namespace
}  // namespace geminid::planner
