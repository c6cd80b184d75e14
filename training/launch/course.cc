#include "training/launch/course.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"

namespace geminid::trainer {
Course::Course(CourseOptions options) : options_(std::move(options)) {
  start_.ranks = options_.ranks;
  start_.job_id = options_.new_job_id();
  start_.restarts = {.count = options_.restarts_made, .most = options_.restarts};
  start_.restarts.may_shrink = Fewer() > 0;
}

// The largest allowed number of ranks below the present one; 0: there is none.
int Course::Fewer() const {
  if (options_.min_ranks == 0) return 0;
  for (int ranks = start_.ranks - 1; ranks >= options_.min_ranks; --ranks) {
    if (!options_.fits || options_.fits(ranks)) return ranks;
  }
  return 0;
}

void Course::ChangeRanks(int ranks, const std::string& host) {
  start_.ranks = ranks;
  start_.host = host;
  start_.restarts.jobs_before.push_back(std::exchange(start_.job_id, options_.new_job_id()));
  start_.restarts.has_shrunk = std::exchange(start_.restarts.shrink_to, 0) > 0;
  ++start_.restarts.rescales;
  start_.restarts.may_shrink = Fewer() > 0;
}

std::optional<std::string> Course::After(const StartEnd& end) {
  // Every later start is told of the signal, until the run ends because of it.
  if (end.signal != 0) start_.restarts.signal_before = end.signal;
  if (end.handover.has_value() && end.handover->number != taken_) return HandOver(end);
  if (!end.failed || end.done) return std::nullopt;
  start_.restarts.failed_at = end.failed_at;
  if (end.handover.has_value()) {
    if (std::optional<std::string> words = AfterUntouched(end)) return words;
  }
  if (!end.may_pass || end.signal != 0) return std::nullopt;
  if (std::optional<std::string> words = Restart(end)) return words;
  return Shrink(end);
}

// The old ranks have left complete state, so any later failure of theirs does not matter.
std::string Course::HandOver(const StartEnd& end) {
  taken_ = end.handover->number;
  tries_ = 1;
  start_.restarts.jobs_before.clear();  // these ranks have already ended those jobs' sessions
  if (start_.restarts.shrink_to == 0) start_.restarts.failed_at.reset();  // no rank has failed
  host_before_ = start_.host;
  const std::string to = end.handover->host;
  ChangeRanks(end.handover->ranks_after, to.empty() ? start_.host : to);
  return absl::StrCat(base::Counted(end.handover->ranks_before, "rank"),
                      " handed over the state after step ", end.handover->step, "; ",
                      base::Counted(start_.ranks, "rank"), " will go on from it",
                      to.empty() ? "" : absl::StrCat(" at ", to));
}

// The handed-over state is still complete, so either number of ranks can go on from it. After a
// move both hosts have it.
std::optional<std::string> Course::AfterUntouched(const StartEnd& end) {
  if (end.may_pass && tries_ < kMostTries) {
    ++tries_;
    ++start_.restarts.rescales;
    return absl::StrCat(end.why, "; all ranks are started again, to go on from the state that was ",
                        "handed over to them");
  }
  const bool moved = start_.host != host_before_;
  if (start_.ranks == end.handover->ranks_before && !moved) return std::nullopt;
  tries_ = 1;
  ChangeRanks(end.handover->ranks_before, host_before_);
  return absl::StrCat(end.why, "; the run goes on with ", base::Counted(start_.ranks, "rank"),
                      " as before", moved ? ", at the host before" : "");
}

std::optional<std::string> Course::Restart(const StartEnd& end) {
  Restarts& restarts = start_.restarts;
  if (restarts.count >= restarts.most) return std::nullopt;
  ++restarts.count;
  return absl::StrCat(end.why, "; all ranks are started again (", restarts.count, " of ",
                      restarts.most, "), to go on from what they left in memory");
}

// Starts all ranks once more. They load the state that the dead rank left in memory, and hand it
// over to fewer ranks.
std::optional<std::string> Course::Shrink(const StartEnd& end) {
  const bool again = start_.restarts.shrink_to > 0;
  tries_ = again ? tries_ + 1 : 1;
  const int fewer = Fewer();
  if (fewer == 0 || tries_ > kMostTries) return std::nullopt;
  start_.restarts.shrink_to = fewer;
  ++start_.restarts.rescales;
  return absl::StrCat(end.why, ", and no restart is left; the run goes on with ",
                      base::Counted(fewer, "rank"), " from what ",
                      base::Counted(start_.ranks, "rank"), " left in memory");
}

}  // namespace geminid::trainer
