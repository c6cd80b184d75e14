#include "training/settings/accumulate_range.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

std::string WhyNot(const TrainOptions& options, int ranks) {
  if (options.parallel.automatic) {
    return "--parallel auto chooses the micro-batches itself; name the axes, as in --parallel "
           "data=2, or leave --parallel out";
  }
  if (options.parallel.cuts()) {
    return "the gradient noise is measured where each rank has whole sequences and the whole "
           "model; leave pipeline, tensor, sequence and expert out of --parallel";
  }
  if (options.zero.stage == zero::Stage::kState) {
    return "zero=1 adds gradients up over a fixed number of micro-batches; take zero=2 or 3";
  }
  if (options.follows_noise->least * static_cast<uint64_t>(ranks) < 2) {
    return absl::StrCat(
        "one rank with one micro-batch a step has one gradient, and noise is the difference of "
        "several; give auto:2:",
        options.follows_noise->most, " (with half the --batch) or --ranks 2");
  }
  return "";
}

}  // namespace

absl::Status CheckAccumulateRange(const TrainOptions& options, int ranks) {
  if (!options.follows_noise) return absl::OkStatus();
  const std::string why = WhyNot(options, ranks);
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--accumulate auto:", options.follows_noise->least,
                                                 ":", options.follows_noise->most, ": ", why));
}

}  // namespace geminid::trainer
