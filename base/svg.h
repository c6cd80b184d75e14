// The SVG elements that the project's pictures use.
#ifndef GEMINID_BASE_SVG_H_
#define GEMINID_BASE_SVG_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace geminid::base {

// For texts and lines: readable on light and on dark pages.
inline constexpr char kSvgInk[] = "#808080";
// For rectangles: narrower ones cannot be told from their neighbours.
inline constexpr double kSvgLeastWidth = 0.4;

// Escapes text for the content of an element or the value of an attribute, in SVG and HTML; control
// characters become spaces.
std::string SvgEscaped(std::string_view text);

// The beginning of a standalone picture, with its title; "</svg>" ends it. Sizes and positions are
// in pixels from the upper left corner.
std::string SvgHead(double width, double height, const std::string& title);

// `anchor`: start, middle or end.
void SvgText(double x, double y, const char* anchor, const std::string& text, std::string* svg);
// `more`: further attributes, each after a space.
void SvgLine(double x1, double y1, double x2, double y2, const char* more, std::string* svg);
// At least kSvgLeastWidth wide. `title`: its tooltip.
void SvgRect(double x, double y, double width, double height, const char* color,
             const std::string& title, std::string* svg);

// One step, from left to right: between the heights `upper` and `lower`, from `from` to `to`.
struct SvgStair {
  double from = 0;
  double to = 0;
  double upper = 0;
  double lower = 0;
};
void SvgStairs(const std::vector<SvgStair>& stairs, const char* color, const std::string& title,
               std::string* svg);

// The meaning of a color.
struct SvgKey {
  const char* color;
  const char* label;
};
// A line of keys; `y`: of the texts.
void SvgLegend(double x, double y, std::span<const SvgKey> keys, std::string* svg);

}  // namespace geminid::base

#endif  // GEMINID_BASE_SVG_H_
