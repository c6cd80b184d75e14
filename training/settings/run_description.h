// The description of a run in its checkpoints.
#ifndef GEMINID_TRAINING_SETTINGS_RUN_DESCRIPTION_H_
#define GEMINID_TRAINING_SETTINGS_RUN_DESCRIPTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace geminid::trainer {

// The run's settings by name, spelled as flags have them. Empty: the run does not have the setting.
using RunTerms = std::map<std::string, std::string>;

struct RunDescription {
  std::string id;  // of the run; a resumed run has the same one
  RunTerms terms;
};

// A run that is resumed from a checkpoint.
struct ResumedRun {
  std::string checkpoint;   // its folder
  std::string passed_over;  // a newer one that was skipped, saved after a divergence; empty: none
  std::string without_record;  // a newer folder that was skipped; empty: none
  uint64_t step = 0;
  RunDescription run;
  std::vector<std::string> taken;  // messages about settings that differ and are accepted
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_RUN_DESCRIPTION_H_
