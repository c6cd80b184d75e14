// The terms of a run are the settings that its checkpoints record. --resume and --load compare them
// with the flags. One table has all terms: a new term is one line there.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_RUN_TERMS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_RUN_TERMS_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/trainer/flags/flags.h"
#include "training/settings/options.h"
#include "training/settings/run_description.h"

namespace geminid::trainer {

// The terms that no flag sets: the training data, and how the ranks share the work, on which
// rounding depends.
inline constexpr char kDataTerm[] = "data";
inline constexpr char kMeshTerm[] = "mesh";

// All terms but these two.
RunTerms TermsOf(const TrainOptions& options);

// The terms that a folder of values has too, and that must be the same to load it.
RunTerms ShapeTermsOf(const ModelConfig& model);

// The differences, in words with both values. Terms that one of the two lacks are skipped: a
// checkpoint of another version or of another trainer has fewer terms.
struct TermChanges {
  std::vector<std::string> refused;  // differences with which the run cannot continue
  std::vector<std::string> taken;    // differences that change the course of the run
};
TermChanges CompareTerms(const RunTerms& was, const RunTerms& is);

// Fills flags that were not given with the values of the checkpoint's run. `given` says whether a
// flag was given, by name ("--seed").
void FillFlags(const RunTerms& was, const std::function<bool(const std::string& flag)>& given,
               Flags* flags);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RUN_TERMS_H_
