// Reads and writes traces in files, so that a recorded or computed trace can be planned and
// simulated without a job.
#ifndef GEMINID_TRAINING_FORECAST_TRACE_FILE_H_
#define GEMINID_TRAINING_FORECAST_TRACE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/tiers/tier_plan.h"
#include "geminid/v1/trace.pb.h"
#include "training/forecast/problem.h"

namespace geminid::forecast {

// One recorded step of one rank. Plain values.
struct RecordedTrace {
  std::string description;  // what was traced, for people
  std::uint32_t world_size = 1;
  std::uint32_t ranks_on_node = 1;
  std::uint64_t tokens = 0;  // per rank and step; 0: unknown
  planner::Trace trace;
  // One per chunk, or none if only the trace was recorded: then bf16 weights under Adam are assumed
  // (DefaultOptimizer).
  std::vector<planner::OptimizerItem> optimizer;
  // Empty if activations are part of the moments' workspace.
  std::vector<planner::ActivationItem> activations;
};

// Larger files are refused without reading them.
inline constexpr std::uint64_t kMaxTraceFileBytes = std::uint64_t{64} << 20;

v1::TraceFile ToMessage(const RecordedTrace& recorded);
// Checks all fields: INVALID_ARGUMENT names the field.
absl::StatusOr<RecordedTrace> FromMessage(const v1::TraceFile& message);

// The extension selects the format: .json, .textproto, and .pb or .trace for binary. Errors name
// the file. Save replaces the file atomically or leaves it as it was.
absl::Status SaveTraceFile(const std::string& path, const v1::TraceFile& message);
absl::StatusOr<v1::TraceFile> LoadTraceFile(const std::string& path);

// The state of each chunk if its bytes are bf16 weights: 12 bytes per parameter of this rank's
// shard with moments of 8, and a gradient of 2. Frozen chunks have a weight alone.
std::vector<planner::OptimizerItem> DefaultOptimizer(const planner::Trace& trace,
                                                     std::uint32_t world_size,
                                                     std::uint64_t moment_bytes_per_parameter);

// Sets the links of `hardware` to the measured ones, including the link that a node's ranks share.
void UseMeasuredLink(const RecordedTrace& recorded, Hardware* hardware);

// The recorded step on the machine of `job`. The ranks are those of the trace, and job.batch is
// ignored. Operators take the recorded time.
planner::TierProblem MakeProblem(const RecordedTrace& recorded, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_TRACE_FILE_H_
