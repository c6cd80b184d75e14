#include "training/launch/restarts.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr size_t kRunNameMax = 63;

struct Names {
  const char* count;
  const char* most;
};
constexpr Names kLaunchers[] = {
    {kRestartCountVariable, kMaxRestartsVariable},
    {"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"},
};

absl::StatusOr<int> Number(const char* name, const char* text) {
  int value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= 0) return value;
  return absl::InvalidArgumentError(absl::StrCat(name, "=\"", text, "\" is not a number"));
}

// Leaves `value` as it is if the variable is missing.
absl::Status ReadNumber(const collectives::Environment& environment, const char* name, int* value) {
  const char* const text = environment(name);
  if (text == nullptr) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(*value, Number(name, text));
  return absl::OkStatus();
}

std::optional<int64_t> Nanoseconds(const char* text) {
  int64_t value = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<Restarts> RestartsFrom(const collectives::Environment& environment) {
  Restarts restarts;
  for (const Names& names : kLaunchers) {
    const char* const count = environment(names.count);
    const char* const most = environment(names.most);
    if (count == nullptr || most == nullptr) continue;
    GEMINID_ASSIGN_OR_RETURN(restarts.count, Number(names.count, count));
    GEMINID_ASSIGN_OR_RETURN(restarts.most, Number(names.most, most));
    break;
  }
  const std::optional<int64_t> ago = Nanoseconds(environment(kFailedAgoVariable));
  const std::optional<int64_t> started = Nanoseconds(environment(kStartedAtVariable));
  if (ago && started) restarts.failed_at = absl::FromUnixNanos(*started - *ago);
  GEMINID_RETURN_IF_ERROR(ReadNumber(environment, kRescalesVariable, &restarts.rescales));
  GEMINID_RETURN_IF_ERROR(ReadNumber(environment, kShrinkToVariable, &restarts.shrink_to));
  GEMINID_RETURN_IF_ERROR(ReadNumber(environment, kSignalBeforeVariable, &restarts.signal_before));
  restarts.may_shrink = environment(kMayShrinkVariable) != nullptr;
  restarts.has_shrunk = environment(kHasShrunkVariable) != nullptr;
  if (const char* const jobs = environment(kJobsBeforeVariable)) {
    restarts.jobs_before = absl::StrSplit(jobs, ',', absl::SkipEmpty());
  }
  return restarts;
}

std::string DescribeStart(const Restarts& restarts, const StartPoint& start_point, absl::Time now) {
  std::string words = absl::StrCat("start ", restarts.count + restarts.rescales + 1, ": ");
  if (start_point.ranks_before > 0) {
    absl::StrAppend(&words, "goes on after step ", start_point.step, ", from the state of ",
                    base::Counted(start_point.ranks_before, "rank"), " in memory");
  } else if (start_point.resumed) {
    absl::StrAppend(&words, "goes on after step ", start_point.step, ", from ", start_point.from);
  } else {
    absl::StrAppend(&words, "not all ranks left their state in memory; begins after step ",
                    start_point.step);
    if (!start_point.from.empty()) absl::StrAppend(&words, ", from ", start_point.from);
  }
  if (!restarts.failed_at.has_value()) return words;
  const absl::Duration since = absl::Trunc(now - *restarts.failed_at, absl::Milliseconds(1));
  return absl::StrCat(words, "; ", absl::FormatDuration(since), " after the failure");
}

std::string RunName(const collectives::RankInfo& info) {
  const std::string name = info.job.empty() ? "run" : info.job;
  const std::string port = absl::StrCat(":", info.master_port);
  return name.substr(0, kRunNameMax - port.size()) + port;
}

}  // namespace geminid::trainer
