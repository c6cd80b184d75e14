#include "tools/geminictl/top_view.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "proto/shm/types.h"
#include "tools/geminictl/account.h"
#include "tools/geminictl/format.h"
#include "tools/geminictl/table.h"

namespace geminid::ctl {
namespace {

constexpr size_t kLabelWidth = 14;
constexpr size_t kBarMin = 10;
constexpr size_t kBarMax = 50;
constexpr size_t kNumbersWidth = 22;  // " 100.0 % of 61.4 GiB"

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
    // Of equal ones the first by name: the order of a map's entries changes from call to call.
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

std::string BarLine(const std::string& label, const BarParts& parts, size_t width,
                    const Style& style) {
  const size_t fixed = kLabelWidth + kNumbersWidth + 2 * 2;
  const size_t bar = std::clamp(width > fixed ? width - fixed : 0, kBarMin, kBarMax);
  std::string name = Printable(label).substr(0, kLabelWidth);
  name.resize(kLabelWidth, ' ');
  const double share = parts.capacity_bytes == 0
                           ? 0
                           : static_cast<double>(parts.in_use_bytes + parts.reserved_bytes) /
                                 static_cast<double>(parts.capacity_bytes);
  return absl::StrCat(name, " ", Bar(parts, bar, style), " ", FormatShare(share), " of ",
                      base::FormatBytes(parts.capacity_bytes), "\n");
}

std::string Bars(const Reading& now, size_t width, const Style& style) {
  std::string text;
  for (const v1::TierLedger& tier : now.status.ledger().tiers()) {
    if (tier.capacity_bytes() == 0) continue;
    absl::StrAppend(
        &text,
        BarLine(AccountName(tier),
                {tier.in_use_bytes(), tier.reserved_bytes(), tier.capacity_bytes()}, width, style));
  }
  for (const v1::SessionInfo& session : now.sessions.sessions()) {
    if (session.device_bytes() == 0) continue;
    absl::StrAppend(&text, BarLine(absl::StrCat(" arena of ", session.session()),
                                   {session.device_in_use_bytes(), session.device_workspace_bytes(),
                                    session.device_bytes()},
                                   width, style));
  }
  return text;
}

std::string Ranks(const std::vector<RankRates>& ranks, const Style& style) {
  Table table({{"SESSION", Align::kRight},
               {"JOB"},
               {"RANK", Align::kRight},
               {"STATE"},
               {"STALL", Align::kRight},
               {"BY"},
               {"TO_DEVICE", Align::kRight},
               {"TO_HOST", Align::kRight},
               {"HOST", Align::kRight},
               {"DEVICE", Align::kRight},
               {"ARENA", Align::kRight},
               {"STEP", Align::kRight},
               {"MOMENT", Align::kRight},
               {"PID", Align::kRight}});
  for (const RankRates& rank : ranks) {
    const v1::SessionInfo& session = *rank.session;
    table.AddRow({absl::StrCat(session.session()), session.job(),
                  absl::StrCat(session.rank(), "/", session.world_size()), session.state(),
                  FormatShare(rank.stall_share), rank.stall_cause,
                  FormatRate(rank.to_device_bytes_per_second),
                  FormatRate(rank.to_host_bytes_per_second),
                  base::FormatBytes(session.host_bytes()), absl::StrCat(session.device()),
                  base::FormatBytes(session.device_bytes()), absl::StrCat(session.step()),
                  absl::StrCat(session.moment()), absl::StrCat(session.pid())});
  }
  return table.empty() ? "no session is attached\n" : table.Render(style);
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

std::string Fit(const std::string& text, const Screen& screen) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // what follows the last newline: nothing
  if (screen.height > 0 && lines.size() > screen.height) {
    const size_t hidden = lines.size() - screen.height + 1;
    lines.resize(screen.height);
    lines.back() = absl::StrCat("... and ", hidden, " lines more");
  }
  std::string fitted;
  for (const std::string& line : lines) absl::StrAppend(&fitted, Cut(line, screen.width), "\n");
  return fitted;
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

std::string DrawTop(const Reading& now, const Reading* before, TopOrder order, const Screen& screen,
                    const Style& style) {
  const v1::Status& status = now.status;
  std::string title = absl::StrCat(
      "geminid ", Printable(status.version()), ", ", Printable(status.phase()), ", up ",
      FormatDuration(status.uptime_seconds()), ", ", status.sessions(), " sessions; rates ",
      before == nullptr ? "since each rank attached"
                        : absl::StrCat("of the last ",
                                       FormatDuration(now.taken_seconds - before->taken_seconds)));
  std::string text = absl::StrCat(Paint(title, Color::kBold, style), "\n");
  if (!status.ledger().adds_up()) {
    absl::StrAppend(&text, Paint("The ledger does NOT add up.", Color::kRed, style), "\n");
  }
  absl::StrAppend(&text, "\n", Bars(now, screen.width, style), std::string(kLabelWidth + 1, ' '),
                  BarLegend(style), "\n\n", Ranks(RankByRank(now, before, order), style));
  return Fit(text, screen);
}

}  // namespace geminid::ctl
