// Collects the figures of all ranks and fills the report with them.
#ifndef GEMINID_TRAINING_RUN_GATHER_REPORT_H_
#define GEMINID_TRAINING_RUN_GATHER_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "training/engines/trained_model.h"
#include "training/logs/progress.h"
#include "training/logs/step_record.h"
#include "training/run/report.h"

namespace geminid::trainer {

// A collective. Every rank fills in the report's figures of memory, transfers and the plan. The
// plan and the causes of stalls are those of this rank.
absl::Status GatherStatistics(collectives::Communicator& communicator,
                              const zero::Statistics& statistics, DeviceIndex device,
                              Report* report);

// Fills in the facts about a run that are known before its first step.
void DescribeRun(const TrainOptions& options, const TrainedModel& model, const Session& session,
                 Report* report);

// As GatherStatistics, and fills in the figures that model and session have of the whole run.
absl::Status GatherRun(collectives::Communicator& communicator, const TrainedModel& model,
                       const Session& session, Report* report);

// The SHA-256 of the fp32 values of all `parameters`, as Report::weights_sha256 has it; empty on
// ranks with `writes` false. A collective.
absl::StatusOr<std::string> HashOfWeights(zero::ModelState& state, size_t parameters, bool writes);

// The log record of the report's newest step, which had this learning rate and this `result`.
StepRecord LastStepOf(const Report& report, const zero::StepResult& result, double learning_rate);

// The figures of the progress line after the report's newest step, except the remaining time. The
// report has the options.
ProgressSample SampleOf(const Report& report, const zero::Statistics& statistics,
                        double seconds_of_training);

// The mean time of the newest steps, from which the rate and the remaining time are computed. There
// is at least one step.
double RecentStepSeconds(const std::vector<double>& step_seconds);

// The cause for which this rank waited longest, and its share of the time, as in "data 3%"; empty:
// it never waited.
std::string LongestStall(const zero::Statistics& statistics, double seconds);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_GATHER_REPORT_H_
