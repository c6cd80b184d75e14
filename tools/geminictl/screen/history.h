// What top has seen in the last minutes, and lines of it in one row of characters. Pure.
#ifndef GEMINID_TOOLS_GEMINICTL_SCREEN_HISTORY_H_
#define GEMINID_TOOLS_GEMINICTL_SCREEN_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

struct Reading;

inline constexpr size_t kHistoryLength = 60;  // readings

class History {
 public:
  // `before` is the reading before of the same daemon, or null. What is not in `now` is forgotten.
  void Add(const Reading& now, const Reading* before);
  void Clear();

  // Shares, 0 to 1, the latest last: of a tier's or a device's memory that is handed out, by the
  // name that the bars show; and of its time that a session waited. Empty for what is unknown.
  const std::deque<double>& Tier(const std::string& account) const;
  const std::deque<double>& Stall(uint64_t session) const;

 private:
  std::map<std::string, std::deque<double>> tiers_;
  std::map<uint64_t, std::deque<double>> stalls_;
};

// The last `width` shares, one character each and the latest at the right, lowest to highest: eight
// heights of blocks, or ".:-=+*#%@" in ASCII; a share of 0 is a space. Always `width` characters.
std::string Sparkline(const std::deque<double>& shares, size_t width, const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_HISTORY_H_
