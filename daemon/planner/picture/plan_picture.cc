#include "daemon/planner/picture/plan_picture.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace geminid::planner {
namespace {

using base::SvgLine;
using base::SvgRect;
using base::SvgText;

// In pixels.
constexpr double kWidth = 720, kLeft = 84, kRight = 704;
constexpr double kTitle = 18, kLegend = 38, kTop = 68;
constexpr double kPlaces = 240, kFullness = 90, kLane = 34, kBar = 28, kHeading = 26, kAxis = 44;
constexpr std::size_t kColumns = 620;
constexpr double kTicks = 8;
// As in the pictures of simulated steps.
constexpr char kUpColor[] = "#0072b2";
constexpr char kDownColor[] = "#d55e00";
constexpr char kWaitColor[] = "#cc79a7";
// Outlines separate chunks that lie side by side.
constexpr char kOutlined[] = "<g stroke=\"#ffffff\" stroke-width=\"0.7\" stroke-opacity=\"0.6\">\n";
constexpr char kLimit[] = " stroke-width=\"2\" stroke-dasharray=\"6 3\"";

struct Frame {
  double moments = 1;
  double bytes = 1;  // the bytes of the whole height
  double X(Moment moment) const {
    return kLeft + (kRight - kLeft) * static_cast<double>(moment) / moments;
  }
  double Height(double height, std::uint64_t of) const {
    return height * std::min(1.0, static_cast<double>(of) / bytes);
  }
};

std::string Moments(Moment first, Moment last) {
  if (first == last) return absl::StrCat("moment ", first);
  return absl::StrCat("moments ", first, " to ", last);
}

double Weight(const PlanTimeline& timeline, const StaySpan& piece) {
  return static_cast<double>(timeline.chunks[piece.chunk].size_bytes) *
         static_cast<double>(piece.end - piece.begin);
}

// The indices of the largest pieces, in order.
std::vector<std::size_t> LargestPieces(const PlanTimeline& timeline) {
  std::vector<std::size_t> indices(timeline.pieces.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  if (indices.size() <= kMostPiecesDrawn) return indices;
  std::ranges::stable_sort(indices, std::ranges::greater(),
                           [&](std::size_t i) { return Weight(timeline, timeline.pieces[i]); });
  indices.resize(kMostPiecesDrawn);
  std::ranges::sort(indices);
  return indices;
}

void DrawScale(double top, double height, const std::string& most, std::string* svg) {
  SvgText(kLeft - 8, top + 10, "end", most, svg);
  SvgText(kLeft - 8, top + height, "end", "0 B", svg);
  SvgLine(kLeft, top + height, kRight, top + height, " stroke-opacity=\"0.5\"", svg);
}

// Draws the arena, its lowest address at the bottom.
void DrawPlaces(const PlanTimeline& timeline, const Frame& frame, double top, std::string* svg) {
  const std::vector<std::size_t> drawn = LargestPieces(timeline);
  std::string heading = "where the chunks lie in the arena";
  if (drawn.size() < timeline.pieces.size()) {
    absl::StrAppend(&heading, " (", timeline.pieces.size() - drawn.size(),
                    " smaller stays are not drawn)");
  }
  SvgText(kLeft, top - 6, "start", heading, svg);
  absl::StrAppend(svg, kOutlined);
  for (const std::size_t i : drawn) {
    const StaySpan& piece = timeline.pieces[i];
    const double height = frame.Height(kPlaces, timeline.chunks[piece.chunk].size_bytes);
    const double bottom = top + kPlaces - frame.Height(kPlaces, piece.device_offset);
    SvgRect(frame.X(piece.begin), bottom - height, frame.X(piece.end) - frame.X(piece.begin),
            height, kOccupantKeys[static_cast<std::size_t>(piece.occupant)].color,
            PieceWords(timeline, piece), svg);
  }
  absl::StrAppend(svg, "</g>\n");
  std::vector<base::SvgStair> workspace;
  for (const TimelineRow& row : Grouped(timeline.rows, kColumns)) {
    const std::uint64_t bytes = row.bytes[static_cast<std::size_t>(Occupant::kActivations)];
    const double end = top + kPlaces - frame.Height(kPlaces, timeline.arena_bytes);
    workspace.push_back(
        {frame.X(row.first), frame.X(row.last + 1), end, end + frame.Height(kPlaces, bytes)});
  }
  base::SvgStairs(workspace, kActivationsKey.color, kActivationsKey.label, svg);
  DrawScale(top, kPlaces, base::FormatBytes(timeline.arena_bytes), svg);
}

void DrawFullness(const PlanTimeline& timeline, const Frame& frame, double top, std::string* svg) {
  SvgText(kLeft, top - 6, "start", "how full it is, under the line of its end", svg);
  const std::vector<TimelineRow> rows = Grouped(timeline.rows, kColumns);
  std::vector<std::uint64_t> below(rows.size());
  for (std::size_t occupant = 0; occupant < kOccupants; ++occupant) {
    std::vector<base::SvgStair> stairs;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t above = below[i] + rows[i].bytes[occupant];
      stairs.push_back({frame.X(rows[i].first), frame.X(rows[i].last + 1),
                        top + kFullness - frame.Height(kFullness, above),
                        top + kFullness - frame.Height(kFullness, below[i])});
      below[i] = above;
    }
    base::SvgStairs(stairs, kOccupantKeys[occupant].color, kOccupantKeys[occupant].label, svg);
  }
  const double end = top + kFullness - frame.Height(kFullness, timeline.arena_bytes);
  SvgLine(kLeft, end, kRight, end, kLimit, svg);
  DrawScale(top, kFullness, base::FormatBytes(static_cast<std::uint64_t>(frame.bytes)), svg);
}

struct Lane {
  const char* name;
  const char* color;
  double (*value)(const TimelineRow& row);
  std::string (*words)(double value);
};

std::string SizeWords(double bytes) { return base::FormatBytes(static_cast<std::uint64_t>(bytes)); }
std::string TimeWords(double seconds) { return absl::StrFormat("%.3g ms", seconds * 1e3); }

const Lane kLanes[] = {
    {"to device", kUpColor, [](const TimelineRow& r) { return static_cast<double>(r.up_bytes); },
     SizeWords},
    {"to host", kDownColor, [](const TimelineRow& r) { return static_cast<double>(r.down_bytes); },
     SizeWords},
    {"waits", kWaitColor, [](const TimelineRow& r) { return r.stall_seconds; }, TimeWords},
};

// A bar per group of moments; the highest fills the lane.
void DrawLane(const Lane& lane, const PlanTimeline& timeline, const Frame& frame, double top,
              std::string* svg) {
  const std::vector<TimelineRow> rows = Grouped(timeline.rows, kColumns);
  double most = 0;
  for (const TimelineRow& row : rows) most = std::max(most, lane.value(row));
  SvgText(kLeft - 8, top + kBar - 14, "end", lane.name, svg);
  SvgText(kLeft - 8, top + kBar, "end", most > 0 ? lane.words(most) : "none", svg);
  SvgLine(kLeft, top + kBar, kRight, top + kBar, " stroke-opacity=\"0.5\"", svg);
  for (const TimelineRow& row : rows) {
    const double value = lane.value(row);
    if (value <= 0) continue;
    const double height = kBar * value / most;
    SvgRect(frame.X(row.first), top + kBar - height, frame.X(row.last + 1) - frame.X(row.first),
            height, lane.color,
            absl::StrCat(Moments(row.first, row.last), ": ", lane.words(value), " ", lane.name),
            svg);
  }
}

void DrawAxis(const PlanTimeline& timeline, const Frame& frame, double top, std::string* svg) {
  std::size_t tick = 1;
  while (static_cast<double>(timeline.rows.size()) / static_cast<double>(tick) > kTicks) tick *= 2;
  for (std::size_t t = 0; t < timeline.rows.size(); t += tick) {
    const double x = frame.X(static_cast<Moment>(t));
    SvgLine(x, top, x, top + 5, "", svg);
    SvgText(x, top + 18, "middle", absl::StrCat(t), svg);
  }
  SvgText((kLeft + kRight) / 2, top + 36, "middle",
          "moments of the iteration: operators of the forward pass, then of the backward pass",
          svg);
}

}  // namespace

std::string PieceWords(const PlanTimeline& timeline, const StaySpan& piece) {
  const Chunk& chunk = timeline.chunks[piece.chunk];
  return absl::StrCat("chunk ", chunk.id, ", ", base::FormatBytes(chunk.size_bytes), " at ",
                      base::FormatBytes(piece.device_offset), ": ",
                      kOccupantKeys[static_cast<std::size_t>(piece.occupant)].label, ", ",
                      Moments(piece.begin, piece.end - 1));
}

std::string PlanSvg(const std::string& title, const PlanTimeline& timeline) {
  Frame frame;
  frame.moments = static_cast<double>(std::max<std::size_t>(timeline.rows.size(), 1));
  std::uint64_t most = std::max<std::uint64_t>(timeline.arena_bytes, 1);
  for (const TimelineRow& row : timeline.rows) most = std::max(most, row.TotalBytes());
  frame.bytes = static_cast<double>(most);
  std::string svg;
  SvgText(kLeft, kTitle, "start", title, &svg);
  base::SvgLegend(kLeft, kLegend, kOccupantKeys, &svg);
  double top = kTop;
  DrawPlaces(timeline, frame, top, &svg);
  top += kPlaces + kHeading;
  DrawFullness(timeline, frame, top, &svg);
  top += kFullness + kHeading / 2;
  for (const Lane& lane : kLanes) {
    DrawLane(lane, timeline, frame, top, &svg);
    top += kLane;
  }
  DrawAxis(timeline, frame, top, &svg);
  return absl::StrCat(base::SvgHead(kWidth, top + kAxis, title), svg, "</svg>\n");
}

}  // namespace geminid::planner
