#include "tools/geminictl/screen/top_view.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/types.h"
#include "tools/geminictl/output/account.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/table.h"
#include "tools/geminictl/screen/history.h"

namespace geminid::ctl {
namespace {

constexpr size_t kLabelWidth = 14;
constexpr size_t kNarrowLabelWidth = 9;  // "device 63"
constexpr size_t kNarrow = 60;           // screens of fewer columns
constexpr size_t kBarMin = 8;
constexpr size_t kBarMax = 50;
constexpr size_t kNumbersWidth = 21;  // "100.0 % of 1023.9 GiB"
constexpr size_t kJobMin = 8;         // characters of a job's name that always stay
constexpr size_t kRanksMin = 3;       // lines of ranks that bars do not displace
constexpr size_t kTierHistory = 24;   // characters
constexpr size_t kRankHistory = 12;

// Values of keys that begin with `prefix`, summed.
template <typename Map>
double Sum(const Map& values, const char* prefix) {
  double sum = 0;
  for (const auto& [key, value] : values) {
    if (absl::StartsWith(key, prefix)) sum += static_cast<double>(value);
  }
  return sum;
}

const v1::SessionInfo* Find(const Reading* reading, uint64_t session) {
  if (reading == nullptr) return nullptr;
  for (const v1::SessionInfo& info : reading->sessions.sessions()) {
    if (info.session() == session) return &info;
  }
  return nullptr;
}

RankRates RatesOf(const v1::SessionInfo& now, const v1::SessionInfo* before, double between) {
  const v1::SessionInfo nothing;
  const v1::SessionInfo& old = before == nullptr ? nothing : *before;
  RankRates rates;
  rates.session = &now;
  rates.seconds = before == nullptr ? now.attached_seconds() : between;
  double largest = 0;
  for (const auto& [cause, seconds] : now.stall_seconds()) {
    const auto was = old.stall_seconds().find(cause);
    const double waited = seconds - (was == old.stall_seconds().end() ? 0 : was->second);
    if (rates.seconds > 0) rates.stall_share += waited / rates.seconds;
    // Ties go to the first name: the order of a map's entries changes from call to call.
    if (waited > largest || (waited > 0 && waited == largest && cause < rates.stall_cause)) {
      largest = waited;
      rates.stall_cause = cause;
    }
  }
  if (rates.seconds <= 0) return rates;
  const auto rate = [&](const char* direction) {
    return (Sum(now.transfer_bytes(), direction) - Sum(old.transfer_bytes(), direction)) /
           rates.seconds;
  };
  rates.to_device_bytes_per_second = rate("host_to_device/");
  rates.to_host_bytes_per_second = rate("device_to_host/");
  return rates;
}

uint64_t BytesOf(const v1::SessionInfo& session) {
  return session.host_bytes() + session.device_bytes();
}

size_t LabelWidth(size_t width) { return width < kNarrow ? kNarrowLabelWidth : kLabelWidth; }

std::string BarLine(const std::string& label, const BarParts& parts, size_t width,
                    const Style& style) {
  const size_t label_width = LabelWidth(width);
  const size_t fixed = label_width + kNumbersWidth + 2;
  const size_t bar = std::clamp(width > fixed ? width - fixed : 0, kBarMin, kBarMax);
  std::string name = Printable(label).substr(0, label_width);
  name.resize(label_width, ' ');
  const double share = parts.capacity_bytes == 0
                           ? 0
                           : static_cast<double>(parts.in_use_bytes + parts.reserved_bytes) /
                                 static_cast<double>(parts.capacity_bytes);
  return absl::StrCat(name, " ", Bar(parts, bar, style), " ", FormatShare(share), " of ",
                      base::FormatBytes(parts.capacity_bytes));
}

std::vector<std::string> TierBars(const Reading& now, size_t width, const Style& style,
                                  const History* history) {
  std::vector<std::string> lines;
  for (const v1::TierLedger& tier : now.status.ledger().tiers()) {
    if (tier.capacity_bytes() == 0) continue;
    std::string line =
        BarLine(AccountName(tier),
                {tier.in_use_bytes(), tier.reserved_bytes(), tier.capacity_bytes()}, width, style);
    const size_t whole = LabelWidth(width) + 1 + kBarMax + 1 + kNumbersWidth;
    if (history != nullptr && width >= whole + 1 + kTierHistory && DisplayWidth(line) <= whole) {
      line.append(whole + 1 - DisplayWidth(line), ' ');
      line += Sparkline(history->Tier(AccountName(tier)), kTierHistory, style);
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> ArenaBars(const Reading& now, size_t width, const Style& style) {
  std::vector<std::string> lines;
  for (const v1::SessionInfo& session : now.sessions.sessions()) {
    if (session.device_bytes() == 0) continue;
    lines.push_back(BarLine(
        absl::StrCat(width < kNarrow ? " of " : " arena of ", session.session()),
        {session.device_in_use_bytes(), session.device_workspace_bytes(), session.device_bytes()},
        width, style));
  }
  return lines;
}

// A column of the ranks' table, and the function that fills its cells.
struct RankColumn {
  Column column;
  int order;  // the highest is dropped first if there is no room
  std::function<std::string(const RankRates&)> cell;
};

std::vector<RankColumn> RankColumns(const History* history, const Style& style) {
  const auto info = [](auto cell) {
    return [cell](const RankRates& rank) { return std::string(cell(*rank.session)); };
  };
  using Info = v1::SessionInfo;
  const Align right = Align::kRight;
  std::vector<RankColumn> columns = {
      {{"SESSION", right}, 0, info([](const Info& i) { return absl::StrCat(i.session()); })},
      {{"JOB"}, 0, info([](const Info& i) { return i.job(); })},
      {{"RANK", right}, 0, info([](const Info& i) {
         return absl::StrCat(i.rank(), "/", i.world_size());
       })},
      {{"STATE"}, 9, info([](const Info& i) { return i.state(); })},
      {{"STALL", right}, 0, [](const RankRates& r) { return FormatShare(r.stall_share); }},
      {{"BY"}, 1, [](const RankRates& r) { return r.stall_cause; }},
      {{"TO_DEVICE", right},
       5,
       [](const RankRates& r) { return FormatRate(r.to_device_bytes_per_second); }},
      {{"TO_HOST", right},
       6,
       [](const RankRates& r) { return FormatRate(r.to_host_bytes_per_second); }},
      {{"HOST", right}, 3, info([](const Info& i) { return base::FormatBytes(i.host_bytes()); })},
      {{"DEVICE", right}, 7, info([](const Info& i) { return absl::StrCat(i.device()); })},
      {{"ARENA", right}, 2, info([](const Info& i) {
         return base::FormatBytes(i.device_bytes());
       })},
      {{"STEP", right}, 4, info([](const Info& i) { return absl::StrCat(i.step()); })},
      {{"MOMENT", right}, 8, info([](const Info& i) { return absl::StrCat(i.moment()); })},
      {{"PID", right}, 10, info([](const Info& i) { return absl::StrCat(i.pid()); })}};
  if (history != nullptr) {
    columns.push_back({{"STALL_HISTORY"}, 6, [history, style](const RankRates& r) {
                         return Sparkline(history->Stall(r.session->session()), kRankHistory,
                                          style);
                       }});
  }
  return columns;
}

size_t WidthOf(const std::vector<std::string>& lines) {
  size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, DisplayWidth(line));
  return width;
}

// The header and one line per rank, without newlines: the columns up to `order`, with job names of
// at most `job` characters.
std::vector<std::string> RankLines(const std::vector<RankRates>& ranks, int order, size_t job,
                                   const Style& style, const History* history) {
  std::vector<RankColumn> columns = RankColumns(history, style);
  std::erase_if(columns, [order](const RankColumn& column) { return column.order > order; });
  std::vector<Column> heads;
  for (const RankColumn& column : columns) heads.push_back(column.column);
  Table table(heads);
  for (const RankRates& rank : ranks) {
    std::vector<std::string> cells;
    for (const RankColumn& column : columns) {
      std::string cell = column.cell(rank);
      if (column.column.name == "JOB" && cell.size() > job) cell = cell.substr(0, job - 1) + "~";
      cells.push_back(std::move(cell));
    }
    table.AddRow(cells);
  }
  std::vector<std::string> lines = absl::StrSplit(table.Render(style), '\n');
  lines.pop_back();  // the empty text after the last newline
  return lines;
}

// The table with as many columns as fit, and with whole names if these fit too.
std::vector<std::string> FitRanks(const std::vector<RankRates>& ranks, size_t width,
                                  const Style& style, const History* history) {
  if (ranks.empty()) return {"no session is attached"};
  constexpr int kAllColumns = 10;
  Style plain = style;
  plain.color = false;
  for (int order = kAllColumns; order > 0; --order) {
    if (WidthOf(RankLines(ranks, order, shm::kNameBytes, plain, history)) <= width) {
      return RankLines(ranks, order, shm::kNameBytes, style, history);
    }
    if (WidthOf(RankLines(ranks, order, kJobMin, plain, history)) > width) continue;
    size_t job = kJobMin;
    while (WidthOf(RankLines(ranks, order, job + 1, plain, history)) <= width) ++job;
    return RankLines(ranks, order, job, style, history);
  }
  return RankLines(ranks, 0, kJobMin, style, history);
}

// Keeps the first `count` lines; the last of them says how many are left out.
void Keep(size_t count, const char* what, std::vector<std::string>* lines) {
  if (lines->size() <= count) return;
  const size_t left_out = lines->size() - count + 1;
  lines->resize(count);
  if (count > 0) lines->back() = absl::StrCat("... and ", left_out, " ", what, " more");
}

// The first `width` characters of a line; escape sequences, "\x1b[...m", take none and all stay.
std::string Cut(const std::string& line, size_t width) {
  std::string cut;
  size_t shown = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      const size_t end = std::min(line.find('m', i), line.size() - 1);
      cut += line.substr(i, end - i + 1);
      i = end;
      continue;
    }
    shown += DisplayWidth(line.substr(i, 1));
    if (shown <= width) cut += line[i];
  }
  return cut;
}

void Append(std::vector<std::string> from, std::vector<std::string>* to) {
  for (std::string& line : from) to->push_back(std::move(line));
}

std::vector<std::string> Title(const Reading& now, const Reading* before, const Screen& screen,
                               const Style& style) {
  const v1::Status& status = now.status;
  const std::string daemon =
      absl::StrCat("geminid ", Printable(status.version()), ", ", Printable(status.phase()),
                   ", up ", FormatDuration(status.uptime_seconds()));
  const std::string rates = absl::StrCat(
      base::Counted(status.sessions(), "session"), "; rates ",
      before == nullptr ? "since each rank attached"
                        : absl::StrCat("of the last ",
                                       FormatDuration(now.taken_seconds - before->taken_seconds)));
  const std::string one_line = absl::StrCat(daemon, ", ", rates);
  std::vector<std::string> lines;
  if (DisplayWidth(one_line) <= screen.width) {
    lines = {one_line};
  } else {
    lines = {daemon, rates};
  }
  for (std::string& line : lines) line = Paint(line, Color::kBold, style);
  if (!status.ledger().adds_up()) {
    lines.push_back(Paint("The ledger does NOT add up.", Color::kRed, style));
  }
  return lines;
}

}  // namespace

std::vector<RankRates> RankByRank(const Reading& now, const Reading* before, TopOrder order) {
  std::vector<RankRates> ranks;
  for (const v1::SessionInfo& session : now.sessions.sessions()) {
    const v1::SessionInfo* const old = Find(before, session.session());
    ranks.push_back(
        RatesOf(session, old, old == nullptr ? 0 : now.taken_seconds - before->taken_seconds));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [order](const RankRates& a, const RankRates& b) {
    if (order == TopOrder::kStall) return a.stall_share > b.stall_share;
    return BytesOf(*a.session) > BytesOf(*b.session);
  });
  return ranks;
}

std::string DrawWaiting(const std::string& problem, const Screen& screen, const Style& style) {
  std::string text = Paint("waiting for the daemon; q quits", Color::kYellow, style) + "\n";
  size_t column = 0;
  for (const auto& word : absl::StrSplit(Printable(problem), ' ', absl::SkipEmpty())) {
    const size_t width = DisplayWidth(std::string(word));
    const bool fits = column > 0 && column + 1 + width <= screen.width;
    if (column > 0) absl::StrAppend(&text, fits ? " " : "\n");
    column = fits ? column + 1 + width : width;
    absl::StrAppend(&text, Cut(std::string(word), screen.width));
  }
  return text + "\n";
}

std::string FitScreen(const std::string& text, const Screen& screen) {
  std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  if (screen.height > 0) Keep(screen.height, "lines", &lines);
  std::string fitting;
  for (const std::string& line : lines) absl::StrAppend(&fitting, Cut(line, screen.width), "\n");
  return fitting;
}

std::string DrawTop(const Reading& now, const Reading* before, TopOrder order, const Screen& screen,
                    const Style& style, const History* history) {
  std::vector<std::string> lines = Title(now, before, screen, style);
  std::vector<std::string> tiers = TierBars(now, screen.width, style, history);
  std::vector<std::string> arenas = ArenaBars(now, screen.width, style);
  std::vector<std::string> ranks =
      FitRanks(RankByRank(now, before, order), screen.width, style, history);
  const size_t header = now.sessions.sessions_size() > 0 ? 1 : 0;
  bool spacious = true;
  if (screen.height > 0) {
    // Room goes to the ranks that bars do not displace, then to the tiers, the other ranks and the
    // arenas; then, if all of these fit, to empty lines and the legend.
    const size_t taken = lines.size() + (screen.keys.empty() ? 0 : 1);
    size_t room = screen.height > taken ? screen.height - taken : 0;
    const size_t least = std::min({ranks.size(), header + kRanksMin, room});
    Keep(room - least, "tiers", &tiers);
    room -= tiers.size();
    Keep(room, "ranks", &ranks);
    room -= ranks.size();
    spacious = room >= arenas.size() + 3;
    if (!spacious) Keep(room, "arenas", &arenas);
  }
  if (spacious) lines.push_back("");
  Append(std::move(tiers), &lines);
  Append(std::move(arenas), &lines);
  if (spacious) {
    lines.push_back(std::string(LabelWidth(screen.width) + 1, ' ') + BarLegend(style));
    lines.push_back("");
  }
  Append(std::move(ranks), &lines);
  if (!screen.keys.empty()) {
    while (lines.size() + 1 < screen.height) lines.push_back("");
    lines.push_back(Paint(screen.keys, Color::kDim, style));
  }
  return FitScreen(absl::StrJoin(lines, "\n"), {.width = screen.width});
}

}  // namespace geminid::ctl
