// A straight line through measured times. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_LINE_H_
#define GEMINID_TRAINING_GOODPUT_LINE_H_

#include <map>

namespace geminid::trainer {

struct Line {
  double at_zero = 0;
  double slope = 0;
};

// Fits y = at_zero + slope x, both at least 0, by least squares of (y' - y) / y. There is at least
// one point, and all x and y are above 0.
Line FitLine(const std::map<double, double>& points);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_LINE_H_
