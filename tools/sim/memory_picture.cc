#include "tools/sim/memory_picture.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::sim {
namespace {

// In pixels.
constexpr double kWidth = 720, kHeight = 320;
constexpr double kLeft = 64, kRight = 704, kTop = 52, kBottom = 268;

// Of middling lightness, and told apart by people who see red and green alike (Okabe and Ito,
// 2008); weights at the bottom, activations at the top of the arena.
struct Layer {
  Owner owner;
  const char* color;
  const char* label;
};
constexpr Layer kLayers[] = {
    {Owner::kWeights, "#0072b2", "gathered weights"},
    {Owner::kLoading, "#56b4e9", "arriving"},
    {Owner::kLeaving, "#d55e00", "gradients leaving"},
    {Owner::kActivations, "#009e73", "activations"},
};
constexpr char kInk[] = "#808080";

std::string Escaped(const std::string& text) {
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

// A power of two, so that four to eight ticks fit below `most`.
double TickBytes(double most) {
  double tick = 1;
  while (most / tick > 8) tick *= 2;
  return tick;
}

struct Scale {
  double unit_bytes = 1;
  const char* unit = "B";
  double most_bytes = 1;
  double Y(double bytes) const { return kBottom - (kBottom - kTop) * bytes / most_bytes; }
};

Scale MakeScale(const MemoryPicture& picture) {
  Scale scale;
  scale.most_bytes = std::max(1.0, static_cast<double>(picture.arena_bytes));
  for (const DeviceBytes& moment : picture.moments) {
    scale.most_bytes = std::max(scale.most_bytes, static_cast<double>(Total(moment)));
  }
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  for (size_t i = 1; i < std::size(kUnits) && scale.most_bytes >= 4 * 1024 * scale.unit_bytes;
       ++i) {
    scale.unit_bytes *= 1024;
    scale.unit = kUnits[i];
  }
  return scale;
}

void Text(double x, double y, const char* anchor, const std::string& text, std::string* svg) {
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                        anchor, Escaped(text));
}

void Line(double x1, double y1, double x2, double y2, const char* more, std::string* svg) {
  absl::StrAppendFormat(svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n",
                        x1, y1, x2, y2, kInk, more);
}

void DrawAxes(const MemoryPicture& picture, const Scale& scale, std::string* svg) {
  Text(kLeft, 18, "start", picture.title, svg);
  const double tick = TickBytes(scale.most_bytes / scale.unit_bytes);
  for (double value = 0; value * scale.unit_bytes <= scale.most_bytes; value += tick) {
    const double y = scale.Y(value * scale.unit_bytes);
    Line(kLeft - 4, y, kRight, y, " stroke-opacity=\"0.25\"", svg);
    Text(kLeft - 8, y + 4, "end", absl::StrFormat("%g %s", value, scale.unit), svg);
  }
  const size_t moments = picture.moments.size();
  const size_t step =
      std::max<size_t>(1, static_cast<size_t>(TickBytes(static_cast<double>(moments))));
  for (size_t t = 0; t < moments; t += step) {
    const double x =
        kLeft + (kRight - kLeft) * (static_cast<double>(t) + 0.5) / static_cast<double>(moments);
    Text(x, kBottom + 16, "middle", absl::StrCat(t), svg);
  }
  Text((kLeft + kRight) / 2, kBottom + 34, "middle",
       "moment of the step (operators of the forward pass, then of the backward pass)", svg);
}

void DrawLegend(std::string* svg) {
  double x = kLeft;
  for (const Layer& layer : kLayers) {
    absl::StrAppendFormat(svg,
                          "<rect x=\"%.1f\" y=\"28\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", x,
                          layer.color);
    Text(x + 14, 37, "start", layer.label, svg);
    x += 30 + 6.5 * static_cast<double>(std::string(layer.label).size());
  }
}

void DrawMoment(const MemoryPicture& picture, const Scale& scale, size_t t, std::string* svg) {
  const double width = (kRight - kLeft) / static_cast<double>(picture.moments.size());
  double below = 0;
  for (const Layer& layer : kLayers) {
    const uint64_t bytes = picture.moments[t][static_cast<size_t>(layer.owner)];
    if (bytes == 0) continue;
    const double top = scale.Y(below + static_cast<double>(bytes));
    absl::StrAppendFormat(svg,
                          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                          "fill=\"%s\"><title>moment %d %s %d</title></rect>\n",
                          kLeft + width * static_cast<double>(t), top, width * 0.92,
                          scale.Y(below) - top, layer.color, t, Name(layer.owner), bytes);
    below += static_cast<double>(bytes);
  }
}

}  // namespace

std::string ToSvg(const MemoryPicture& picture) {
  const Scale scale = MakeScale(picture);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"%s\" role=\"img\">\n",
      kWidth, kHeight, kWidth, kHeight, kInk);
  absl::StrAppend(&svg, "<title>", Escaped(picture.title), "</title>\n");
  DrawAxes(picture, scale, &svg);
  DrawLegend(&svg);
  for (size_t t = 0; t < picture.moments.size(); ++t) DrawMoment(picture, scale, t, &svg);
  const double y = scale.Y(static_cast<double>(picture.arena_bytes));
  Line(kLeft, y, kRight, y, " stroke-width=\"2\" stroke-dasharray=\"6 3\"", &svg);
  Text(kRight, y - 4, "end",
       absl::StrFormat("device memory: %g %s",
                       static_cast<double>(picture.arena_bytes) / scale.unit_bytes, scale.unit),
       &svg);
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace geminid::sim
