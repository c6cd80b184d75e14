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

// A collective. Fills in what the report says of memory, transfers and the plan, on every rank; the
// plan and the causes of stalls are this rank's own.
absl::Status GatherStatistics(collectives::Communicator& communicator,
                              const zero::Statistics& statistics, DeviceIndex device,
                              Report* report);

// What options, model and session say of a run before its first step.
void DescribeRun(const TrainOptions& options, const TrainedModel& model, const Session& session,
                 Report* report);

// As GatherStatistics, with what the model and the session say of the run.
absl::Status GatherRun(collectives::Communicator& communicator, const TrainedModel& model,
                       const Session& session, Report* report);

// Of the fp32 values of all `parameters`, as Report::weights_sha256; empty where this rank does not
// write it. A collective.
absl::StatusOr<std::string> HashOfWeights(zero::ModelState& state, size_t parameters, bool writes);

// What the logs say of the newest step of the report, made with this learning rate; `result` is the
// step's.
StepRecord LastStepOf(const Report& report, const zero::StepResult& result, double learning_rate);

// What the line of progress says after the newest step of the report, whose options are there, but
// for the time that is left.
ProgressSample SampleOf(const Report& report, const zero::Statistics& statistics,
                        double seconds_of_training);

// The mean time of the newest steps, by which the rate and the remaining time are told. Not of
// none.
double RecentStepSeconds(const std::vector<double>& step_seconds);

// Why this rank stood still for longest, and for which share of the time, as in "data 3%"; empty:
// there is no cause.
std::string LongestStall(const zero::Statistics& statistics, double seconds);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_GATHER_REPORT_H_
