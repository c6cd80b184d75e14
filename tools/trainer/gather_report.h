// Brings the numbers of all ranks into the report.
#ifndef GEMINID_TOOLS_TRAINER_GATHER_REPORT_H_
#define GEMINID_TOOLS_TRAINER_GATHER_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"
#include "tools/trainer/report.h"

namespace geminid::trainer {

// A collective. Fills in what the report says of memory, transfers and the plan, on every rank; the
// plan and the causes of stalls are this rank's own.
absl::Status GatherStatistics(collectives::Communicator& communicator,
                              const zero::Statistics& statistics, DeviceIndex device,
                              Report* report);

// Why this rank stood still for longest, and for which share of the time, as in "data 3%"; empty:
// there is no cause.
std::string LongestStall(const zero::Statistics& statistics, double seconds);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_GATHER_REPORT_H_
