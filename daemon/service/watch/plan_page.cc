#include "daemon/service/watch/plan_page.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/svg.h"
#include "daemon/planner/picture/plan_picture.h"
#include "daemon/planner/picture/plan_timeline.h"
#include "daemon/service/sessions/plan_messages.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {
namespace {

using base::FormatBytes;
using planner::PlanTimeline;

// The colors of the page at /; no scripts at all.
constexpr char kHead[] = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --ink: #1d1f21; --dim: #5b6166; --page: #ffffff; --rule: #d5d9dc; --focus: #c25e00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6e8; --dim: #a3abb1; --page: #16181a; --rule: #3a3f44; --focus: #ffa64d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--page); color: var(--ink);
  font: 0.9375rem/1.4 system-ui, sans-serif; overflow-wrap: anywhere; }
header { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; align-items: baseline; }
h1 { font-size: 1.25rem; margin: 0; }
h2 { font-size: 1rem; margin: 1.5rem 0 0.5rem; }
header p { color: var(--dim); margin: 0; flex: 1 1 14rem; }
a { color: inherit; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
.wide { overflow-x: auto; overflow-wrap: normal; }
svg { display: block; width: 100%; min-width: 45rem; max-width: 60rem; height: auto; }
svg text { fill: var(--ink); }
svg line { stroke: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th.text, td.text { text-align: left; }
</style>
)page";

std::string Cell(const char* element, bool is_text, std::string_view content) {
  return absl::StrCat("<", element, element[1] == 'h' ? " scope=\"col\"" : "",
                      is_text ? " class=\"text\">" : ">", base::SvgEscaped(content), "</", element,
                      ">");
}

// `columns` that begin with a space have texts; cells of rows are as they are shown.
std::string Table(const std::vector<std::string>& columns,
                  const std::vector<std::vector<std::string>>& rows) {
  const auto line = [&](const char* element, const std::vector<std::string>& cells) {
    std::string html = "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(&html, Cell(element, columns[i].starts_with(' '), cells[i]));
    }
    return html + "</tr>\n";
  };
  std::string html = absl::StrCat("<table><thead>", line("th", columns), "</thead>\n<tbody>");
  for (const std::vector<std::string>& row : rows) absl::StrAppend(&html, line("td", row));
  return html + "</tbody></table>\n";
}

// Reached by keyboard and scrolled by it: on a narrow screen it is wider than the page.
std::string Section(const char* id, const char* heading, const std::string& note,
                    const std::string& content) {
  return absl::StrCat("<h2 id=\"", id, "\">", heading, "</h2>\n",
                      note.empty() ? "" : absl::StrCat("<p>", base::SvgEscaped(note), "</p>\n"),
                      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"", id,
                      "\">\n", content, "</div>\n");
}

std::string Page(uint64_t session, const std::string& about, const std::string& content) {
  return absl::StrCat(kHead, "<title>geminid: the plan of session ", session,
                      "</title>\n</head>\n<body>\n<header>\n  <h1>The plan of session ", session,
                      "</h1>\n  <p>", base::SvgEscaped(about),
                      "</p>\n  <a href=\"/\">geminid</a>\n</header>\n<main>\n", content,
                      "</main>\n</body>\n</html>\n");
}

std::string Numbered(uint32_t first, uint32_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, " to ", last);
}

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  return absl::StrFormat("%.1f %%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string Explanation(const v1::Plan& plan) {
  std::string html;
  const std::vector<std::string> lines =
      absl::StrSplit(plan.explanation(), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    absl::StrAppend(&html, "<p>", base::SvgEscaped(line), "</p>\n");
  }
  return html;
}

std::string MomentTable(const PlanTimeline& timeline) {
  std::vector<std::vector<std::string>> rows;
  for (const planner::TimelineRow& row : planner::Grouped(timeline.rows, kMostMomentRows)) {
    std::vector<std::string> cells = {
        Numbered(row.first, row.last), FormatBytes(row.up_bytes), FormatBytes(row.down_bytes),
        row.stall_seconds > 0 ? absl::StrFormat("%.3g ms", row.stall_seconds * 1e3) : ""};
    for (const uint64_t bytes : row.bytes) cells.push_back(FormatBytes(bytes));
    cells.push_back(FormatBytes(row.TotalBytes()));
    cells.push_back(Percent(row.TotalBytes(), timeline.arena_bytes));
    rows.push_back(std::move(cells));
  }
  std::vector<std::string> columns = {"moments", "to device", "to host", "waits"};
  for (const base::SvgKey& key : planner::kOccupantKeys) columns.emplace_back(key.label);
  columns.insert(columns.end(), {"together", "of the arena"});
  return Table(columns, rows);
}

// The largest, by chunk and moment.
std::string PlaceTable(const PlanTimeline& timeline, std::string* note) {
  std::vector<planner::StaySpan> pieces = timeline.pieces;
  const auto weight = [&](const planner::StaySpan& piece) {
    return timeline.chunks[piece.chunk].size_bytes * uint64_t{piece.end - piece.begin};
  };
  std::ranges::stable_sort(pieces, std::ranges::greater(), weight);
  if (pieces.size() > kMostPlaceRows) {
    *note = absl::StrCat("The largest ", kMostPlaceRows, " of ", pieces.size(),
                         ", by bytes and moments.");
    pieces.resize(kMostPlaceRows);
  }
  std::ranges::stable_sort(pieces, {}, [&](const planner::StaySpan& piece) {
    return std::pair(timeline.chunks[piece.chunk].id, piece.begin);
  });
  std::vector<std::vector<std::string>> rows;
  for (const planner::StaySpan& piece : pieces) {
    const planner::Chunk& chunk = timeline.chunks[piece.chunk];
    rows.push_back({absl::StrCat(chunk.id), FormatBytes(chunk.size_bytes),
                    FormatBytes(piece.device_offset), Numbered(piece.begin, piece.end - 1),
                    planner::kOccupantKeys[static_cast<size_t>(piece.occupant)].label});
  }
  return Table({"chunk", "size", "place in the arena", "moments", " as"}, rows);
}

}  // namespace

std::optional<uint64_t> SessionOfPath(const std::string& path) {
  const std::string_view prefix = kPlanPages;
  if (!path.starts_with(prefix)) return std::nullopt;
  const std::string number = path.substr(prefix.size());
  uint64_t session = 0;
  if (!absl::SimpleAtoi(number, &session) || absl::StrCat(session) != number) return std::nullopt;
  return session;
}

std::string PlanPage(uint64_t session, const core::SessionSpec& spec,
                     const StoredPlan::Contents& contents) {
  const auto trace = messages::TraceFromMessage<planner::Trace>(contents.trace);
  const PlanTimeline timeline = planner::TimelineOf(trace, PlanFromMessage(contents.plan));
  const std::string title =
      absl::StrCat("Session ", session, ": one iteration as it is planned, of ",
                   timeline.rows.size(), " moments");
  std::string note;
  const std::string places = PlaceTable(timeline, &note);
  return Page(
      session,
      absl::StrCat("job ", spec.job, ", rank ", spec.rank, " of ", spec.world_size, ", tenant ",
                   spec.tenant),
      absl::StrCat(Explanation(contents.plan),
                   Section("picture", "The iteration", "", planner::PlanSvg(title, timeline)),
                   Section("moments", "By moments", "The same in numbers.", MomentTable(timeline)),
                   Section("places", "By chunks", note, places)));
}

std::string NoPlanPage(uint64_t session, const std::string& why) {
  return Page(session, "", absl::StrCat("<p>", base::SvgEscaped(why), "</p>\n"));
}

}  // namespace geminid::service
