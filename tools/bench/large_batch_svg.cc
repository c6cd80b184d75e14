#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "tools/bench/large_batch_experiment.h"

namespace geminid::bench {
namespace {

constexpr double kWidth = 720, kHeight = 420;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 60;
// The end of training matters: losses far above the floor are cut off.
constexpr double kMostOfFloor = 1.4;
// Colours that people with red-green blindness can tell apart (Okabe and Ito).
constexpr std::array kColours = {"#0072b2", "#56b4e9", "#d55e00", "#e69f00"};

std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

// Samples across, loss upwards.
struct Frame {
  double samples, least, most;

  double X(double s) const { return kLeft + s / samples * (kWidth - kLeft - kRight); }
  double Y(double loss) const {
    return kTop + (most - loss) / (most - least) * (kHeight - kTop - kBottom);
  }
};

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + text +
         "</text>\n";
}

std::string Axes(const Frame& f, double floor) {
  std::string svg = Format("<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#444\"/>\n",
                           kLeft, kTop, kHeight - kBottom, kWidth - kRight);
  for (const double loss : NiceTicks(f.least, f.most)) {
    svg += Text(kLeft - 8, f.Y(loss) + 4, "end", Format("%g", loss));
  }
  for (const double millions : NiceTicks(0, f.samples / 1e6)) {
    svg += Text(f.X(millions * 1e6), kHeight - kBottom + 18, "middle",
                Format(millions == 0 ? "%g" : "%gM", millions));
  }
  svg += Text(kWidth / 2, kHeight - 18, "middle", "samples seen");
  svg += Format(
      "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#888\" stroke-dasharray=\"4 4\" fill=\"none\"/>\n",
      kLeft, f.Y(floor), kWidth - kRight);
  return svg + Text(kLeft + 8, f.Y(floor) - 5, "start", "loss of the teacher");
}

std::string Line(const Frame& f, const LargeBatchResult& result, const char* colour, bool dashed) {
  std::string points;
  for (const LossPoint& p : result.curve) {
    const double loss = std::min(p.loss, f.most);
    points += Format("%.1f,%.1f ", f.X(static_cast<double>(p.samples)), f.Y(loss));
  }
  return "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string(colour) +
         (dashed ? "\" stroke-dasharray=\"7 3\" points=\"" : "\" points=\"") + points + "\"/>\n";
}

}  // namespace

std::vector<double> NiceTicks(double least, double most) {
  constexpr int kMostTicks = 7;
  if (!(most > least)) return {least};
  const double rough = (most - least) / (kMostTicks - 1);
  // Divides instead of multiplying by a negative power of ten, which no double represents exactly.
  const int power = static_cast<int>(std::floor(std::log10(rough)));
  const double ten = std::pow(10.0, std::abs(power));
  for (const int digit : {1, 2, 5, 10}) {
    const auto value = [&](double n) { return power < 0 ? n * digit / ten : n * digit * ten; };
    if (value(1) < rough * (1 - 1e-9)) continue;
    std::vector<double> ticks;
    for (double n = std::ceil(least / value(1) - 1e-9) + 0.0; value(n) <= most * (1 + 1e-9); ++n) {
      ticks.push_back(value(n));
    }
    return ticks;
  }
  return {};
}

std::string LargeBatchSvg(const std::vector<LargeBatchCurve>& curves, double floor) {
  Frame f = {1, floor, floor};
  for (const LargeBatchCurve& curve : curves) {
    for (const LossPoint& p : curve.result.curve) {
      f.samples = std::max(f.samples, static_cast<double>(p.samples));
      f.most = std::max(f.most, p.loss);
    }
  }
  f.most = std::min(f.most, kMostOfFloor * floor);
  f.least = floor - 0.05 * (f.most - floor);
  std::string svg = Format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += Text(kWidth / 2, 22, "middle", "Loss at the small batch and at 16 times the batch");
  svg += Axes(f, floor);
  for (size_t i = 0; i < curves.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    const double y = kTop + 20 + 18 * static_cast<double>(i);
    svg += Line(f, curves[i].result, colour, i % 2 == 1);
    svg += Format("<path d=\"M%.1f %.1fh24\" stroke-width=\"2\" stroke=\"%s\"%s/>\n", kWidth - 240,
                  y - 4, colour, i % 2 == 1 ? " stroke-dasharray=\"7 3\"" : "");
    svg += Text(kWidth - 210, y, "start", curves[i].name);
  }
  return svg + "</svg>\n";
}

}  // namespace geminid::bench
