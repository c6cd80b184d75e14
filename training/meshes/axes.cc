#include "training/meshes/axes.h"

#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flag_values.h"
#include "base/status_macros.h"

namespace geminid::parallel {

absl::Status RefuseParallel(const std::string& words) {
  return absl::InvalidArgumentError(absl::StrCat("--parallel: ", words));
}

absl::Status ReadAxes(const std::string& text, const ReadAxis& read) {
  std::set<std::string> seen;
  for (const std::string& piece : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> sides = absl::StrSplit(piece, absl::MaxSplits('=', 1));
    if (sides.size() < 2) {
      return RefuseParallel(
          absl::StrCat("'", piece, "' is not AXIS=SIZE; an example: pipeline=2,data=2"));
    }
    if (!seen.insert(sides[0]).second) {
      return RefuseParallel(absl::StrCat(sides[0], " appears twice; give it once"));
    }
    GEMINID_RETURN_IF_ERROR(read(sides[0], sides[1]));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ReadSize(const std::string& axis, const std::string& text, int most) {
  GEMINID_ASSIGN_OR_RETURN(
      const uint64_t size,
      base::ParseCount(absl::StrCat("--parallel: ", axis), text, 1, static_cast<uint64_t>(most)));
  return static_cast<int>(size);
}

ModeAndSize SplitMode(const std::string& value) {
  const std::vector<std::string> pieces = absl::StrSplit(value, absl::MaxSplits(':', 1));
  return pieces.size() == 1 ? ModeAndSize{"", pieces[0]} : ModeAndSize{pieces[0], pieces[1]};
}

absl::StatusOr<ZeroAxis> ReadZero(const std::string& value) {
  if (value == "1" || value == "2" || value == "3") return ZeroAxis{.stage = value[0] - '0'};
  if (value == "3:host") return ZeroAxis{.within_host = true};
  if (value == "1:host" || value == "2:host") {
    return RefuseParallel(absl::StrCat(
        "zero is '", value, "'; with ", value.substr(0, 1),
        " each rank holds all weights between updates, so it gathers none within its host; "
        "take 3:host, or leave :host out"));
  }
  return RefuseParallel(
      absl::StrCat("zero is '", value,
                   "'; it must be 3, which shards weights, gradients and the optimizer's state; "
                   "3:host, which also gathers weights from other hosts only once between updates; "
                   "2, which shards gradients and state; or 1, which shards state alone"));
}

}  // namespace geminid::parallel
