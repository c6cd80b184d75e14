// What a checkpoint records of the run that wrote it.
#ifndef GEMINID_TRAINING_SETTINGS_RUN_DESCRIPTION_H_
#define GEMINID_TRAINING_SETTINGS_RUN_DESCRIPTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace geminid::trainer {

// Values by name, as flags spell them; empty: the run has none of it.
using RunTerms = std::map<std::string, std::string>;

struct RunDescription {
  std::string id;  // of the run, which keeps it when it is resumed
  RunTerms terms;
};

// A run that goes on from a checkpoint.
struct ResumedRun {
  std::string checkpoint;   // its folder
  std::string passed_over;  // a newer one, saved after the run had diverged; empty: there is none
  uint64_t step = 0;
  RunDescription run;
  std::vector<std::string> taken;  // what this run does otherwise, in words
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_RUN_DESCRIPTION_H_
