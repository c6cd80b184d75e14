// The few words of SVG that pictures here are made of.
#ifndef GEMINID_BASE_SVG_H_
#define GEMINID_BASE_SVG_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace geminid::base {

// Of texts and lines: reads on light and on dark pages.
inline constexpr char kSvgInk[] = "#808080";
// Of a rectangle: what is narrower cannot be told from its neighbour.
inline constexpr double kSvgLeastWidth = 0.4;

// Any text as the content of an element or the value of an attribute, of SVG and of HTML; control
// characters become spaces.
std::string SvgEscaped(std::string_view text);

// The beginning of a stand-alone picture, with its title; "</svg>" ends it. Sizes and places are in
// pixels, from the upper left corner.
std::string SvgHead(double width, double height, const std::string& title);

// `anchor`: start, middle or end.
void SvgText(double x, double y, const char* anchor, const std::string& text, std::string* svg);
// `more`: further attributes, each after a space.
void SvgLine(double x1, double y1, double x2, double y2, const char* more, std::string* svg);
// At least kSvgLeastWidth wide. `title`: what it says to whoever points at it.
void SvgRect(double x, double y, double width, double height, const char* color,
             const std::string& title, std::string* svg);

// From left to right: between these heights from `from` to `to`.
struct SvgStair {
  double from = 0;
  double to = 0;
  double upper = 0;
  double lower = 0;
};
void SvgStairs(const std::vector<SvgStair>& stairs, const char* color, const std::string& title,
               std::string* svg);

// What a color stands for.
struct SvgKey {
  const char* color;
  const char* label;
};
// A line of them; `y`: of the texts.
void SvgLegend(double x, double y, std::span<const SvgKey> keys, std::string* svg);

}  // namespace geminid::base

#endif  // GEMINID_BASE_SVG_H_
