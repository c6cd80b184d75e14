#include "tools/geminictl/output/format.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace geminid::ctl {
namespace {

struct TimeUnit {
  const char* name;
  uint64_t seconds;
};
constexpr std::array<TimeUnit, 4> kTimeUnits = {{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}}};

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

struct BarCharacters {
  const char* in_use;
  const char* reserved;
  const char* free;
};
constexpr BarCharacters kAsciiBar = {"#", "=", "."};
constexpr BarCharacters kUnicodeBar = {"█", "▒", "·"};

std::string Repeat(const char* character, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += character;
  return text;
}

// How many of `width` characters stand for `bytes` of `capacity`.
size_t Share(uint64_t bytes, uint64_t capacity, size_t width, size_t room) {
  if (bytes == 0 || capacity == 0) return 0;
  const double exact =
      static_cast<double>(bytes) / static_cast<double>(capacity) * static_cast<double>(width);
  const size_t rounded = exact < 1 ? 1 : static_cast<size_t>(std::llround(exact));
  return std::min(rounded, room);
}

}  // namespace

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const uint64_t whole = static_cast<uint64_t>(seconds);
  for (size_t i = 0; i + 1 < kTimeUnits.size(); ++i) {
    const TimeUnit& large = kTimeUnits[i];
    if (whole < large.seconds) continue;
    const TimeUnit& small = kTimeUnits[i + 1];
    return absl::StrCat(whole / large.seconds, " ", large.name, " ",
                        whole % large.seconds / small.seconds, " ", small.name);
  }
  return absl::StrFormat("%.1f s", seconds);
}

std::string FormatShare(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

std::string FormatRate(double bytes_per_second) {
  if (!(bytes_per_second >= 1)) return "-";
  return absl::StrCat(base::FormatBytes(static_cast<uint64_t>(bytes_per_second)), "/s");
}

size_t DisplayWidth(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

std::string Bar(const BarParts& parts, size_t width, const Style& style) {
  const BarCharacters& characters = style.unicode ? kUnicodeBar : kAsciiBar;
  const size_t in_use = Share(parts.in_use_bytes, parts.capacity_bytes, width, width);
  const size_t reserved = Share(parts.reserved_bytes, parts.capacity_bytes, width, width - in_use);
  return absl::StrCat(
      Paint(Repeat(characters.in_use, in_use), Color::kGreen, style),
      Paint(Repeat(characters.reserved, reserved), Color::kYellow, style),
      Paint(Repeat(characters.free, width - in_use - reserved), Color::kDim, style));
}

std::string BarLegend(const Style& style) {
  const BarCharacters& characters = style.unicode ? kUnicodeBar : kAsciiBar;
  return absl::StrCat(Paint(characters.in_use, Color::kGreen, style), " in use  ",
                      Paint(characters.reserved, Color::kYellow, style), " reserved  ",
                      Paint(characters.free, Color::kDim, style), " free");
}

}  // namespace geminid::ctl
