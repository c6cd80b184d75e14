#include "training/launch/host_file.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/flag_values.h"
#include "base/loopback.h"
#include "base/status_macros.h"
#include "training/launch/host_name.h"

namespace geminid::trainer {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// Parses the words of a line whose comment was removed.
absl::StatusOr<HostSlots> ParseLine(const std::string& where,
                                    const std::vector<std::string>& words) {
  HostSlots host{.name = words[0]};
  if (const absl::Status named = CheckHostName(host.name); !named.ok()) {
    return absl::Status(named.code(),
                        absl::StrCat(where, std::string(named.message()),
                                     "; a line is HOST slots=N or USER@HOST slots=N"));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    constexpr char kSlots[] = "slots=";
    if (!absl::StartsWith(words[i], kSlots)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "'", words[i],
                       "' is not understood; a line is HOST slots=N, such as node-a slots=4"));
    }
    const std::string number(absl::StripPrefix(words[i], kSlots));
    GEMINID_ASSIGN_OR_RETURN(const uint64_t slots,
                             base::ParseCount(absl::StrCat(where, "slots"), number, 1, kRanksMax));
    host.ranks = static_cast<int>(slots);
  }
  return host;
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseHostFile(const std::string& path,
                                                     const std::string& text) {
  std::vector<HostSlots> hosts;
  int number = 0;
  const absl::string_view no_mark = absl::StripPrefix(text, "\xef\xbb\xbf");  // of some editors
  const std::vector<std::string> lines = absl::StrSplit(no_mark, '\n');
  for (const std::string& line : lines) {
    const std::string where = absl::StrCat("--hosts: ", path, ":", ++number, ": ");
    const std::string words_only = line.substr(0, line.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(words_only, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    GEMINID_ASSIGN_OR_RETURN(const HostSlots host, ParseLine(where, words));
    const bool twice = std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& other) {
      return AddressOf(other.name) == AddressOf(host.name);
    });
    if (twice) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, AddressOf(host.name), " appears twice; give all its slots in one line"));
    }
    hosts.push_back(host);
  }
  if (hosts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hosts: ", path, " names no host; a line is HOST slots=N"));
  }
  for (const HostSlots& host : hosts) {
    if (hosts.size() == 1 || !base::IsLoopback(AddressOf(host.name))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--hosts: ", path, " names ", host.name,
        ", which each host takes for itself; write the name by which the others reach that host"));
  }
  if (SlotsOf(hosts) > kRanksMax) {
    return absl::InvalidArgumentError(absl::StrCat("--hosts: ", path, " has ", SlotsOf(hosts),
                                                   " slots; a run has ", kRanksMax,
                                                   " ranks at most"));
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ReadHostFile(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kMaxFileBytes));
  return ParseHostFile(path, text);
}

absl::StatusOr<std::vector<HostSlots>> TakeSlots(const std::vector<HostSlots>& hosts, int ranks) {
  std::vector<HostSlots> taken;
  int left = ranks;
  for (const HostSlots& host : hosts) {
    if (left == 0) break;
    taken.push_back({.name = host.name, .ranks = std::min(host.ranks, left)});
    left -= taken.back().ranks;
  }
  if (left == 0) return taken;
  return absl::InvalidArgumentError(absl::StrCat("--hosts has ", SlotsOf(hosts),
                                                 " slots, but the run needs ", ranks,
                                                 " ranks; add hosts or slots"));
}

int SlotsOf(const std::vector<HostSlots>& hosts) {
  int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.ranks;
  return static_cast<int>(std::min<int64_t>(slots, INT32_MAX));
}

}  // namespace geminid::trainer
