// The lines that a run prints before its first step, when it diverges, and when it ends.
#ifndef GEMINID_TRAINING_RUN_RUN_WORDS_H_
#define GEMINID_TRAINING_RUN_RUN_WORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "training/ranks/run_end.h"
#include "training/run/report.h"

namespace geminid::trainer {

// `report` was filled in by DescribeRun. `mesh` is empty if ranks share nothing but the data.
std::vector<std::string> StartLines(const Report& report, int ranks, const std::string& mesh,
                                    const std::string& why_activations);

// The message about the first loss that is not finite.
std::string DivergenceWords(uint64_t step, bool stops);

struct EndFacts {
  const Report& report;  // with the run's options
  const TrainEnd& end;
  const std::string& saved_in;  // the newest checkpoint; empty: none
};
// Why the run ended and where its outputs are; may be empty. After a divergence it looks for the
// last healthy checkpoint.
std::string EndWords(const EndFacts& facts);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_RUN_WORDS_H_
