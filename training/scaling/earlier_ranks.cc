#include "training/scaling/earlier_ranks.h"

#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/src/job_scaling.h"

namespace geminid::trainer {
namespace {

// To end sessions whose memory is large.
constexpr absl::Duration kEndAnswer = absl::Seconds(30);

}  // namespace

absl::Status EndEarlierRanks(const TrainOptions& options, const RankContext& context) {
  if (!LeadsHost(context) || context.restarts.jobs_before.empty()) return absl::OkStatus();
  JobScaling daemon(context.socket, std::max(kEndAnswer, options.timeout));
  for (const std::string& job : context.restarts.jobs_before) {
    collectives::RankInfo before = context.info;
    before.job = job;
    GEMINID_RETURN_IF_ERROR(daemon.EndRun(options.job, RunName(before)));
  }
  return absl::OkStatus();
}

}  // namespace geminid::trainer
