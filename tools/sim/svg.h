// The few words of SVG that pictures here are made of.
#ifndef GEMINID_TOOLS_SIM_SVG_H_
#define GEMINID_TOOLS_SIM_SVG_H_

#include <string>

#include "tools/sim/observer.h"

namespace geminid::sim {

// Of texts and lines: reads on light and on dark pages.
inline constexpr char kSvgInk[] = "#808080";

// Of middling lightness, and told apart by people who see red and green alike (Okabe and Ito,
// 2008); weights at the bottom, activations at the top of the arena.
struct OwnerColor {
  Owner owner;
  const char* color;
  const char* label;
};
inline constexpr OwnerColor kOwnerColors[] = {
    {Owner::kWeights, "#0072b2", "gathered weights"},
    {Owner::kLoading, "#56b4e9", "arriving"},
    {Owner::kLeaving, "#d55e00", "gradients leaving"},
    {Owner::kActivations, "#009e73", "activations"},
};

// Any text as the content of an element; control characters become spaces.
std::string SvgEscaped(const std::string& text);

// The beginning of a stand-alone picture, with its title; "</svg>" ends it. Sizes and places are in
// pixels, from the upper left corner.
std::string SvgHead(double width, double height, const std::string& title);

// `anchor`: start, middle or end.
void SvgText(double x, double y, const char* anchor, const std::string& text, std::string* svg);
// `more`: further attributes, each after a space.
void SvgLine(double x1, double y1, double x2, double y2, const char* more, std::string* svg);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_SVG_H_
