#include "training/goodput/line.h"

namespace geminid::trainer {

Line FitLine(const std::map<double, double>& points) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const auto& [x, y] : points) {
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const Line through_zero = {0, wxy / wxx};
  const double determinant = w * wxx - wx * wx;
  if (points.size() < 2 || determinant <= 0) return through_zero;
  const Line line = {(wy * wxx - wxy * wx) / determinant, (w * wxy - wx * wy) / determinant};
  if (line.at_zero < 0) return through_zero;
  if (line.slope < 0) return {wy / w, 0};
  return line;
}

}  // namespace geminid::trainer
