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

// The terms that the flags do not say: which data is trained on, and how the ranks share the work,
// on which rounding depends.
inline constexpr char kDataTerm[] = "data";
inline constexpr char kMeshTerm[] = "mesh";

// All terms but these.
RunTerms TermsOf(const TrainOptions& options);

// Those that a folder of values has too, and that must be the same to load it.
RunTerms ShapeTermsOf(const ModelConfig& model);

// What differs, in words with both values. A term that one of them does not have is passed over: a
// checkpoint of another version or of another trainer says less.
struct TermChanges {
  std::vector<std::string> refused;  // the run cannot go on so
  std::vector<std::string> taken;    // the run takes another course
};
TermChanges CompareTerms(const RunTerms& was, const RunTerms& is);

// Fills the flags that were not given with what the checkpoint's run had. `given` says which were,
// by name ("--seed").
void FillFlags(const RunTerms& was, const std::function<bool(const std::string& flag)>& given,
               Flags* flags);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RUN_TERMS_H_
