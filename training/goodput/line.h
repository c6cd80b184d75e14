// A straight line through measured times. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_LINE_H_
#define GEMINID_TRAINING_GOODPUT_LINE_H_

#include <map>

namespace geminid::trainer {

struct Line {
  double at_zero = 0;
  double slope = 0;
};

// y = at_zero + slope x, both at least 0, by least squares of (y' - y) / y. Points with x and y
// above 0, one at least.
Line FitLine(const std::map<double, double>& points);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_LINE_H_
