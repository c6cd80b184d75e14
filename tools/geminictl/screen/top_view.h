// One screen of geminictl top: pure, from two readings to text.
#ifndef GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_VIEW_H_
#define GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <vector>

#include "geminid/v1/admin.pb.h"
#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

class History;

enum class TopOrder { kStall, kBytes };

struct Reading {
  v1::Status status;
  v1::ListSessionsResponse sessions;
  double taken_seconds = 0;  // of any steady clock
};

struct Screen {
  size_t width = 80;
  size_t height = 0;   // 0: as many lines as there are
  std::string keys{};  // what may be typed, for the last line; empty: no such line
};

// What one rank did: since `before` where it was attached then, else since it attached.
struct RankRates {
  const v1::SessionInfo* session = nullptr;  // into the reading
  double seconds = 0;
  double stall_share = 0;
  std::string stall_cause;  // the largest; empty without a stall
  double to_device_bytes_per_second = 0;
  double to_host_bytes_per_second = 0;
};
// Sorted: the most stalled, or the largest, first.
std::vector<RankRates> RankByRank(const Reading& now, const Reading* before, TopOrder order);

// Bars of the tiers and arenas, then the ranks. Fits any screen; one of 40 columns and 10 lines
// shows ranks and keys beside a bar. What is left out is counted. With `history`, which may be
// null, what was before is drawn beside tiers and ranks where there is room.
std::string DrawTop(const Reading& now, const Reading* before, TopOrder order, const Screen& screen,
                    const Style& style, const History* history = nullptr);

// What of a text a screen has room for: the beginning of each of the first lines.
std::string FitScreen(const std::string& text, const Screen& screen);

// While there is no daemon to read.
std::string DrawWaiting(const std::string& problem, const Screen& screen, const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_VIEW_H_
