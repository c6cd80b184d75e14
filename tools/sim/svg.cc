#include "tools/sim/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::sim {

std::string SvgEscaped(const std::string& text) {
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
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
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

}  // namespace geminid::sim
