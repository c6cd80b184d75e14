#include "tools/sim/memory_picture.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/svg.h"
#include "tools/sim/owner_keys.h"

namespace geminid::sim {
namespace {

using base::SvgHead;
using base::SvgLine;
using base::SvgText;

// In pixels.
constexpr double kWidth = 720, kHeight = 320;
constexpr double kLeft = 64, kRight = 704, kLegend = 37, kTop = 52, kBottom = 268;

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

void DrawAxes(const MemoryPicture& picture, const Scale& scale, std::string* svg) {
  SvgText(kLeft, 18, "start", picture.title, svg);
  const double tick = TickBytes(scale.most_bytes / scale.unit_bytes);
  for (double value = 0; value * scale.unit_bytes <= scale.most_bytes; value += tick) {
    const double y = scale.Y(value * scale.unit_bytes);
    SvgLine(kLeft - 4, y, kRight, y, " stroke-opacity=\"0.25\"", svg);
    SvgText(kLeft - 8, y + 4, "end", absl::StrFormat("%g %s", value, scale.unit), svg);
  }
  const size_t moments = picture.moments.size();
  const size_t step =
      std::max<size_t>(1, static_cast<size_t>(TickBytes(static_cast<double>(moments))));
  for (size_t t = 0; t < moments; t += step) {
    const double x =
        kLeft + (kRight - kLeft) * (static_cast<double>(t) + 0.5) / static_cast<double>(moments);
    SvgText(x, kBottom + 16, "middle", absl::StrCat(t), svg);
  }
  SvgText((kLeft + kRight) / 2, kBottom + 34, "middle",
          "moment of the step (operators of the forward pass, then of the backward pass)", svg);
}

void DrawMoment(const MemoryPicture& picture, const Scale& scale, size_t t, std::string* svg) {
  const double width = (kRight - kLeft) / static_cast<double>(picture.moments.size());
  double below = 0;
  for (size_t layer = 0; layer < kOwners; ++layer) {
    const Owner owner = kOwnersFromBelow[layer];
    const uint64_t bytes = picture.moments[t][static_cast<size_t>(owner)];
    if (bytes == 0) continue;
    const double top = scale.Y(below + static_cast<double>(bytes));
    base::SvgRect(kLeft + width * static_cast<double>(t), top, width * 0.92, scale.Y(below) - top,
                  kOwnerKeys[layer].color, absl::StrCat("moment ", t, " ", Name(owner), " ", bytes),
                  svg);
    below += static_cast<double>(bytes);
  }
}

}  // namespace

std::string ToSvg(const MemoryPicture& picture) {
  const Scale scale = MakeScale(picture);
  std::string svg = SvgHead(kWidth, kHeight, picture.title);
  DrawAxes(picture, scale, &svg);
  base::SvgLegend(kLeft, kLegend, kOwnerKeys, &svg);
  for (size_t t = 0; t < picture.moments.size(); ++t) DrawMoment(picture, scale, t, &svg);
  const double y = scale.Y(static_cast<double>(picture.arena_bytes));
  SvgLine(kLeft, y, kRight, y, " stroke-width=\"2\" stroke-dasharray=\"6 3\"", &svg);
  SvgText(kRight, y - 4, "end",
          absl::StrFormat("device memory: %g %s",
                          static_cast<double>(picture.arena_bytes) / scale.unit_bytes, scale.unit),
          &svg);
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace geminid::sim
