#include "base/svg.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::base {
namespace {

constexpr double kSwatch = 10, kSwatchGap = 4, kKeyGap = 16, kCharacter = 6.5;

}  // namespace

std::string SvgEscaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return escaped;
}

std::string SvgHead(double width, double height, const std::string& title) {
  return absl::StrCat(
      absl::StrFormat(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
          "height=\"%g\" font-family=\"sans-serif\" font-size=\"12\" fill=\"%s\" role=\"img\">\n",
          width, height, width, height, kSvgInk),
      "<title>", SvgEscaped(title), "</title>\n");
}

void SvgText(double x, double y, const char* anchor, const std::string& text, std::string* svg) {
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                        anchor, SvgEscaped(text));
}

void SvgLine(double x1, double y1, double x2, double y2, const char* more, std::string* svg) {
  absl::StrAppendFormat(svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n",
                        x1, y1, x2, y2, kSvgInk, more);
}

void SvgRect(double x, double y, double width, double height, const char* color,
             const std::string& title, std::string* svg) {
  absl::StrAppendFormat(svg,
                        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\">"
                        "<title>%s</title></rect>\n",
                        x, y, std::max(width, kSvgLeastWidth), height, color, SvgEscaped(title));
}

void SvgStairs(const std::vector<SvgStair>& stairs, const char* color, const std::string& title,
               std::string* svg) {
  std::string points;
  for (const SvgStair& stair : stairs) {
    absl::StrAppendFormat(&points, "%.2f,%.2f %.2f,%.2f ", stair.from, stair.upper, stair.to,
                          stair.upper);
  }
  for (auto stair = stairs.rbegin(); stair != stairs.rend(); ++stair) {
    absl::StrAppendFormat(&points, "%.2f,%.2f %.2f,%.2f ", stair->to, stair->lower, stair->from,
                          stair->lower);
  }
  absl::StrAppend(svg, "<polygon points=\"", points, "\" fill=\"", color, "\"><title>",
                  SvgEscaped(title), "</title></polygon>\n");
}

void SvgLegend(double x, double y, std::span<const SvgKey> keys, std::string* svg) {
  for (const SvgKey& key : keys) {
    absl::StrAppendFormat(svg,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%g\" height=\"%g\" fill=\"%s\"/>\n",
                          x, y - kSwatch + 1, kSwatch, kSwatch, key.color);
    SvgText(x + kSwatch + kSwatchGap, y, "start", key.label, svg);
    x += kSwatch + kSwatchGap + kKeyGap +
         kCharacter * static_cast<double>(std::string_view(key.label).size());
  }
}

}  // namespace geminid::base
