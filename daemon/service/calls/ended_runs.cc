#include "daemon/service/calls/ended_runs.h"

#include <algorithm>

namespace geminid::service {

void EndedRuns::Forget(core::Time now) {
  while (!ended_.empty() && now - ended_.front().at >= kRemembered) ended_.pop_front();
  while (ended_.size() > kMost) ended_.pop_front();
}

void EndedRuns::Note(const Run& run, core::Time now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ended_, [&](const Ended& ended) { return ended.run == run; });
  ended_.push_back({run, now});
  Forget(now);
}

bool EndedRuns::Has(const Run& run, core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(now);
  return std::ranges::any_of(ended_, [&](const Ended& ended) { return ended.run == run; });
}

}  // namespace geminid::service
