// The lines that a run prints before its first step: the model, the mesh, and how it computes.
#ifndef GEMINID_TRAINING_RUN_START_LINES_H_
#define GEMINID_TRAINING_RUN_START_LINES_H_

#include <string>
#include <vector>

#include "training/run/report.h"

namespace geminid::trainer {

struct StartFacts {
  const Report& report;  // with what DescribeRun knows
  int ranks = 1;
  std::string mesh;  // empty: nothing but the data is shared out
  std::string why_activations;
};

std::vector<std::string> StartLines(const StartFacts& facts);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_START_LINES_H_
