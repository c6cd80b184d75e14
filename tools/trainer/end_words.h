// What a run says of itself after its last step.
#ifndef GEMINID_TOOLS_TRAINER_END_WORDS_H_
#define GEMINID_TOOLS_TRAINER_END_WORDS_H_

#include <string>

#include "tools/trainer/report.h"
#include "tools/trainer/train.h"

namespace geminid::trainer {

struct EndFacts {
  const Report& report;  // with the run's options
  const TrainEnd& end;
  const std::string& saved_in;  // the newest checkpoint; empty: none
};

// Why the run ended and where its outputs are. Empty where there is nothing to say. After a
// divergence it looks for the last healthy checkpoint.
std::string EndWords(const EndFacts& facts);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_END_WORDS_H_
