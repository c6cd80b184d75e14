// The lines that a run prints before its first step: the model, the mesh, and how it computes.
#ifndef GEMINID_TOOLS_TRAINER_START_LINES_H_
#define GEMINID_TOOLS_TRAINER_START_LINES_H_

#include <string>
#include <vector>

#include "tools/trainer/report.h"

namespace geminid::trainer {

struct StartFacts {
  const Report& report;  // with what is known before the first step
  int ranks = 1;
  std::string arithmetic;     // "bf16 emulated"
  std::string limit;          // of instruction sets; empty: none
  std::string mesh;           // empty: nothing but the data is shared out
  std::string products;       // who multiplies on a GPU; empty: no GPU
  std::string attention;      // who computes attention there; likewise
  std::string why_activations;  // or why not
};

std::vector<std::string> StartLines(const StartFacts& facts);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_START_LINES_H_
