// Formats numbers and foreign text for people. For sizes see base/bytes.h.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_FORMAT_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/printable.h"
#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

// The two largest units: "3 d 4 h", "2 h 12 min", "5 min 3 s", "12.3 s".
std::string FormatDuration(double seconds);

// 0.123 -> "12.3 %".
std::string FormatShare(double share);

// "61.4 MiB/s"; "-" for less than one byte in a second.
std::string FormatRate(double bytes_per_second);

using base::Printable;

// Characters on the screen, if each code point takes one.
size_t DisplayWidth(const std::string& text);

// The parts of a number of bytes; the rest of `capacity_bytes` is free.
struct BarParts {
  uint64_t in_use_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t capacity_bytes = 0;
};

// A stacked bar of `width` characters. A part of at least one byte gets at least one character
// while there is room.
std::string Bar(const BarParts& parts, size_t width, const Style& style);

// What the three kinds of characters in a bar mean.
std::string BarLegend(const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_FORMAT_H_
