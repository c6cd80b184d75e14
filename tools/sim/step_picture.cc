#include "tools/sim/step_picture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/svg.h"
#include "tools/sim/owner_keys.h"

namespace geminid::sim {
namespace {

using base::SvgHead;
using base::SvgLine;
using base::SvgText;

// In pixels.
constexpr double kWidth = 960, kLeft = 96, kRight = 944;
constexpr double kLanesTop = 52, kLane = 22, kBar = 16, kGap = 18, kMemory = 150, kAxis = 40;
constexpr double kLegend = 37;
constexpr double kTicks = 8;

// The colours of the tracks, in the order of Track.
constexpr const char* kTrackColors[kTracks] = {"#009e73", "#cc79a7", "#0072b2", "#d55e00",
                                               "#56b4e9", "#e69f00", "#808080"};

double Milliseconds(core::Time time) { return static_cast<double>(time.nanoseconds()) * 1e-6; }

struct Page {
  std::string svg;
  double milliseconds = 0;  // of the whole step
  double X(double at) const { return kLeft + (kRight - kLeft) * at / milliseconds; }
};

// Spans of one track by their beginnings, joined where they cannot be told apart.
struct Bar {
  double begin = 0;  // pixels
  double end = 0;
  std::string title;
  size_t spans = 1;
};

std::vector<Bar> BarsOf(const SimulationResult& step, Track track, const Page& page) {
  std::vector<const Span*> spans;
  for (const Span& span : step.spans) {
    if (span.track == track) spans.push_back(&span);
  }
  std::ranges::stable_sort(spans, {}, [](const Span* span) { return span->begin; });
  std::vector<Bar> bars;
  for (const Span* span : spans) {
    const double begin = page.X(Milliseconds(span->begin)), end = page.X(Milliseconds(span->end));
    if (!bars.empty() && end - bars.back().begin < base::kSvgLeastWidth) {
      bars.back().end = std::max(bars.back().end, end);
      ++bars.back().spans;
      continue;
    }
    bars.push_back({begin, end,
                    absl::StrFormat("%s, %.3f ms", span->name,
                                    Milliseconds(span->end) - Milliseconds(span->begin)),
                    1});
  }
  return bars;
}

// Returns where the next lane begins.
double DrawLane(const SimulationResult& step, Track track, double top, Page* page) {
  const std::vector<Bar> bars = BarsOf(step, track, *page);
  if (bars.empty()) return top;
  SvgText(kLeft - 8, top + kBar - 4, "end", Name(track), &page->svg);
  for (const Bar& bar : bars) {
    const std::string title =
        bar.spans == 1 ? bar.title : absl::StrCat(bar.title, " and ", bar.spans - 1, " more");
    base::SvgRect(bar.begin, top, bar.end - bar.begin, kBar,
                  kTrackColors[static_cast<size_t>(track)], title, &page->svg);
  }
  return top + kLane;
}

uint64_t MostBytes(const SimulationResult& step) {
  uint64_t most = std::max<uint64_t>(step.arena_bytes, 1);
  for (const MemorySample& sample : step.samples) most = std::max(most, Total(sample.bytes));
  return most;
}

// One sample for each column of pixels, the last of those that fall on it: a picture cannot show
// more.
std::vector<const MemorySample*> Columns(const SimulationResult& step, const Page& page) {
  std::vector<const MemorySample*> columns;
  for (const MemorySample& sample : step.samples) {
    const double x = page.X(Milliseconds(sample.at));
    if (!columns.empty() && x - page.X(Milliseconds(columns.back()->at)) < base::kSvgLeastWidth) {
      columns.back() = &sample;
    } else {
      columns.push_back(&sample);
    }
  }
  return columns;
}

// Stacked areas, one per owner, each a staircase from left to right and back below.
void DrawMemory(const SimulationResult& step, double top, Page* page) {
  const double bottom = top + kMemory;
  const auto most = static_cast<double>(MostBytes(step));
  const auto y = [&](uint64_t bytes) {
    return bottom - kMemory * static_cast<double>(bytes) / most;
  };
  const std::vector<const MemorySample*> columns = Columns(step, *page);
  std::vector<uint64_t> below(columns.size());
  for (size_t layer = 0; layer < kOwners; ++layer) {
    std::vector<base::SvgStair> stairs;
    for (size_t i = 0; i < columns.size(); ++i) {
      const double from = page->X(Milliseconds(columns[i]->at));
      const double to = i + 1 < columns.size() ? page->X(Milliseconds(columns[i + 1]->at)) : kRight;
      const auto owner = static_cast<size_t>(kOwnersFromBelow[layer]);
      const uint64_t above = below[i] + columns[i]->bytes[owner];
      stairs.push_back({from, to, y(above), y(below[i])});
      below[i] = above;
    }
    base::SvgStairs(stairs, kOwnerKeys[layer].color, kOwnerKeys[layer].label, &page->svg);
  }
  SvgText(kLeft - 8, top + 4, "end", base::FormatBytes(MostBytes(step)), &page->svg);
  SvgText(kLeft - 8, bottom, "end", "0 B", &page->svg);
  SvgLine(kLeft, y(step.arena_bytes), kRight, y(step.arena_bytes),
          " stroke-width=\"2\" stroke-dasharray=\"6 3\"", &page->svg);
  SvgText(kRight, y(step.arena_bytes) - 4, "end",
          absl::StrCat("device memory: ", base::FormatBytes(step.arena_bytes)), &page->svg);
}

// A tenth, a fifth or a half of a power of ten, so that at most kTicks fit.
double TickMilliseconds(double most) {
  double tick = std::pow(10, std::floor(std::log10(most / kTicks)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (most / tick <= kTicks) break;
    tick *= factor;
  }
  return tick;
}

void DrawAxis(double top, Page* page) {
  const double tick = TickMilliseconds(page->milliseconds);
  for (double at = 0; at <= page->milliseconds * (1 + 1e-9); at += tick) {
    SvgLine(page->X(at), top, page->X(at), top + 5, "", &page->svg);
    SvgText(page->X(at), top + 18, "middle", absl::StrFormat("%g ms", at), &page->svg);
  }
}

}  // namespace

SimulationResult ReportedOfFirstRank(const SimulationResult& run) {
  const auto from = core::Time::FromNanoseconds(
      static_cast<int64_t>(std::llround(run.reported_from_seconds * 1e9)));
  const auto moved = [from](core::Time time) {
    return core::Time::FromNanoseconds(std::max<int64_t>(0, (time - from).nanoseconds()));
  };
  SimulationResult step = run;
  step.reported_from_seconds = 0;
  step.ranks.resize(std::min<size_t>(run.ranks.size(), 1));
  step.spans.clear();
  step.samples.clear();
  for (const Span& span : run.spans) {
    if (span.rank != 0 || span.end <= from) continue;
    step.spans.push_back({0, span.track, span.name, moved(span.begin), moved(span.end)});
  }
  MemorySample first;
  for (const MemorySample& sample : run.samples) {
    if (sample.rank != 0) continue;
    if (sample.at <= from) {
      first.bytes = sample.bytes;
    } else {
      step.samples.push_back({0, moved(sample.at), sample.bytes});
    }
  }
  step.samples.insert(step.samples.begin(), first);
  return step;
}

std::string StepSvg(const std::string& title, const SimulationResult& step) {
  Page page;
  page.milliseconds = std::max(
      1e-6, 1e3 * std::accumulate(step.step_seconds.begin(), step.step_seconds.end(), 0.0));
  // An update of weights may end after the step whose gradients it takes.
  for (const Span& span : step.spans) {
    page.milliseconds = std::max(page.milliseconds, Milliseconds(span.end));
  }
  SvgText(kLeft, 18, "start", title, &page.svg);
  base::SvgLegend(kLeft, kLegend, kOwnerKeys, &page.svg);
  double top = kLanesTop;
  for (int track = 0; track < kTracks; ++track) {
    top = DrawLane(step, static_cast<Track>(track), top, &page);
  }
  top += kGap;
  DrawMemory(step, top, &page);
  top += kMemory;
  DrawAxis(top, &page);
  return absl::StrCat(SvgHead(kWidth, top + kAxis, title), page.svg, "</svg>\n");
}

}  // namespace geminid::sim
