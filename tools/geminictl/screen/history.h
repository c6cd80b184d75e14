// The readings of top in the last minutes, and sparklines of them. Pure.
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
  // `before`: the previous reading of the same daemon, or null. Removes accounts and ranks that
  // `now` lacks.
  void Add(const Reading& now, const Reading* before);
  void Clear();

  // Shares from 0 to 1, the latest last; empty for unknown names. Tier: the allocated memory of a
  // tier or device, by the name of its bar. Stall: the share of time that the session waited.
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
