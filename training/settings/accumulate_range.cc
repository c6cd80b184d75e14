#include "training/settings/accumulate_range.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/flag_values.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

struct Bounds {
  uint64_t least = 0;
  uint64_t most = 0;
};

// "auto:MIN:MAX". `things` are what is counted.
absl::StatusOr<Bounds> ParseBounds(const std::string& flag, const std::string& value,
                                   const std::string& things, const std::string& example,
                                   uint64_t limit) {
  const std::vector<std::string> words = absl::StrSplit(value, ':');
  if (words.size() != 3 || words[0] != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(base::WithValue(flag, value),
                                                   "give a number, or auto with the fewest and the "
                                                   "most ",
                                                   things, " of a step, as in ", example));
  }
  Bounds bounds;
  const std::string name = absl::StrCat(flag, " auto");
  GEMINID_ASSIGN_OR_RETURN(bounds.least, base::ParseCount(name, words[1], 1, limit));
  GEMINID_ASSIGN_OR_RETURN(bounds.most, base::ParseCount(name, words[2], 1, limit));
  if (bounds.most > bounds.least) return bounds;
  return absl::InvalidArgumentError(absl::StrCat(base::WithValue(flag, value), "the most ", things,
                                                 " must be more than the fewest; give ", flag, " ",
                                                 bounds.least, " for as many in each step"));
}

bool IsBatchRange(const TrainOptions& options) {
  return options.follows_noise && options.follows_noise->flag.starts_with("--batch");
}

// The bounds nearest to the given ones whose micro-batches `shares` can divide: "auto:8:16".
std::string DivisibleBounds(const TrainOptions& options, uint64_t shares) {
  const auto [least, most] = std::pair(options.follows_noise->least, options.follows_noise->most);
  const uint64_t micro_batch = (options.batch + shares - 1) / shares * shares;
  const uint64_t greatest = std::max(options.batch * most / micro_batch, least + 1);
  return absl::StrCat("auto:", micro_batch * least, ":", micro_batch * greatest);
}

std::string OneGradient(const TrainOptions& options) {
  constexpr char kWhy[] =
      "one rank with one micro-batch a step has one gradient, and noise is the difference of "
      "several; give ";
  if (IsBatchRange(options)) {
    constexpr uint64_t kGradients = 2;  // either flag makes so many of MIN sequences
    const std::string bounds =
        options.batch % kGradients == 0
            ? ""
            : absl::StrCat("--batch ", DivisibleBounds(options, kGradients), " and also ");
    return absl::StrCat(kWhy, bounds, "--accumulate 2 or --ranks 2");
  }
  return absl::StrCat(kWhy, "auto:2:", options.follows_noise->most,
                      " (with half the --batch) or --ranks 2");
}

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
    return OneGradient(options);
  }
  return "";
}

}  // namespace

absl::StatusOr<AccumulateRange> ParseAccumulateRange(const std::string& value) {
  GEMINID_ASSIGN_OR_RETURN(const Bounds bounds, ParseBounds("--accumulate", value, "micro-batches",
                                                            "auto:2:16", kAccumulateMax));
  return AccumulateRange{
      .flag = absl::StrCat("--accumulate ", value), .least = bounds.least, .most = bounds.most};
}

absl::StatusOr<BatchRange> ParseBatchRange(const std::string& value,
                                           const std::string& accumulate) {
  GEMINID_ASSIGN_OR_RETURN(const Bounds bounds,
                           ParseBounds("--batch", value, "sequences", "auto:8:128", kBatchMax));
  AccumulateRange count;  // of micro-batches
  if (accumulate.starts_with("auto")) {
    GEMINID_ASSIGN_OR_RETURN(count, ParseAccumulateRange(accumulate));
  } else {
    GEMINID_ASSIGN_OR_RETURN(count.least,
                             base::ParseCount("--accumulate", accumulate, 1, kAccumulateMax));
  }
  if (bounds.least % count.least != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        base::WithValue("--batch", value), "a step of ", bounds.least, " sequences cannot have ",
        count.least, " micro-batches (--accumulate) of one size; give a multiple of ",
        count.least));
  }
  const uint64_t micro_batch = bounds.least / count.least;
  const uint64_t most = bounds.most / micro_batch;
  if (bounds.most % micro_batch != 0 || most > kAccumulateMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        base::WithValue("--batch", value), "a step has up to ", kAccumulateMax,
        " micro-batches of ", micro_batch, " sequences (", bounds.least,
        " divided by --accumulate); give a multiple of that as the most, as in auto:", bounds.least,
        ":", micro_batch * std::min(most, kAccumulateMax)));
  }
  return BatchRange{micro_batch,
                    {.flag = absl::StrCat("--batch ", value), .least = count.least, .most = most}};
}

absl::Status CheckAccumulateRange(const TrainOptions& options, int ranks) {
  if (!options.follows_noise) return absl::OkStatus();
  const std::string why = WhyNot(options, ranks);
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(options.follows_noise->flag, ": ", why));
}

absl::Status CheckBatchRange(const TrainOptions& options, uint64_t shares) {
  if (!IsBatchRange(options) || options.batch % shares == 0) return absl::OkStatus();
  const AccumulateRange& range = *options.follows_noise;
  return absl::InvalidArgumentError(
      absl::StrCat(range.flag, ": a micro-batch has ", base::Counted(options.batch, "sequence"),
                   range.least == 1 ? " (MIN)" : absl::StrCat(" (MIN / ", range.least, ")"),
                   ", which cannot be divided among ", base::Counted(shares, "rank"),
                   "; give --batch ", DivisibleBounds(options, shares)));
}

}  // namespace geminid::trainer
