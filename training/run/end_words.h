// The messages of a run that diverges, reaches a limit of its driver, or ends.
#ifndef GEMINID_TRAINING_RUN_END_WORDS_H_
#define GEMINID_TRAINING_RUN_END_WORDS_H_

#include <cstdint>
#include <string>

#include "geminid/session.h"
#include "training/run/report.h"
#include "training/run/run_end.h"

namespace geminid::trainer {

struct EndFacts {
  const Report& report;  // with the run's options
  const TrainEnd& end;
  const std::string& saved_in;  // the newest checkpoint; empty: none
};

// Why the run ended and where its outputs are. Empty where there is nothing to say. After a
// divergence it looks for the last healthy checkpoint.
std::string EndWords(const EndFacts& facts);

// Of the first loss that is not finite.
std::string DivergenceWords(uint64_t step, bool stops);

// Of host memory that a GPU's driver did not page-lock.
std::string RefusedMemoryWords(int rank, const HostRegistration& host);

// Once nine tenths of what a rank may write to disk are written; empty before.
std::string DiskEnduranceWords(int rank, uint64_t written_bytes, uint64_t endurance_bytes);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_END_WORDS_H_
