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
  size_t height = 0;   // 0: no limit
  std::string keys{};  // the keys, for the last line; empty: no such line
};

// One rank's rates since `before` if the rank was attached then, else since it attached.
struct RankRates {
  const v1::SessionInfo* session = nullptr;  // into the reading
  double seconds = 0;
  double stall_share = 0;
  std::string stall_cause;  // the largest; empty without a stall
  double to_device_bytes_per_second = 0;
  double to_host_bytes_per_second = 0;
};
// All ranks, the most stalled or the largest first.
std::vector<RankRates> RankByRank(const Reading& now, const Reading* before, TopOrder order);

// Draws bars of the tiers and arenas, then the ranks. Fits any screen; 40 columns and 10 lines have
// room for a bar, ranks and keys. Says how many lines are left out. With `history`, which may be
// null, sparklines are drawn beside tiers and ranks if there is room.
std::string DrawTop(const Reading& now, const Reading* before, TopOrder order, const Screen& screen,
                    const Style& style, const History* history = nullptr);

// The part of a text that fits on a screen: the beginnings of the first lines.
std::string FitScreen(const std::string& text, const Screen& screen);

// The screen while no daemon can be read.
std::string DrawWaiting(const std::string& problem, const Screen& screen, const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_VIEW_H_
