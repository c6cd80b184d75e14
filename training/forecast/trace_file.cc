#include "training/forecast/trace_file.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/messages/trace_messages.h"

namespace geminid::forecast {
namespace {

using messages::kTraceFileVersion;

constexpr std::size_t kDescriptionMax = 256;
constexpr std::uint32_t kWorldMax = 1 << 20;
constexpr std::uint64_t kTokensMax = std::uint64_t{1} << 40;

absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status CheckHead(const v1::TraceFile& message) {
  if (message.format_version() != kTraceFileVersion) {
    return Wrong(absl::StrCat("format_version is ", message.format_version(),
                              "; this program reads version ", kTraceFileVersion));
  }
  if (message.description().size() > kDescriptionMax) {
    return Wrong(absl::StrCat("description has ", message.description().size(), " bytes; at most ",
                              kDescriptionMax, " are read"));
  }
  if (message.world_size() < 1 || message.world_size() > kWorldMax) {
    return Wrong(
        absl::StrCat("world_size is ", message.world_size(), "; it must be from 1 to ", kWorldMax));
  }
  if (message.ranks_on_node() < 1 || message.ranks_on_node() > message.world_size()) {
    return Wrong(absl::StrCat("ranks_on_node is ", message.ranks_on_node(),
                              "; it must be from 1 to world_size, ", message.world_size()));
  }
  if (message.tokens() > kTokensMax) {
    return Wrong(
        absl::StrCat("tokens is ", message.tokens(), "; at most ", kTokensMax, " are read"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptimizer(const v1::TraceFile& message) {
  const int count = message.optimizer_size();
  if (count != 0 && count != message.trace().chunks_size()) {
    return Wrong(absl::StrCat("optimizer has ", count, " items for ", message.trace().chunks_size(),
                              " chunks; it must have one per chunk, or none"));
  }
  for (int i = 0; i < count; ++i) {
    const v1::TraceOptimizerItem& item = message.optimizer(i);
    for (const std::uint64_t bytes :
         {item.parameters(), item.weight_bytes(), item.remainder_bytes(), item.moment_bytes(),
          item.gradient_bytes()}) {
      if (bytes > planner::kMaxChunkBytes) {
        return Wrong(absl::StrCat("optimizer[", i, "] has a field of ", bytes, "; at most ",
                                  planner::kMaxChunkBytes, " is possible"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(const v1::TraceFile& message, int i) {
  const v1::TraceActivation& item = message.activations(i);
  const std::string name = absl::StrCat("activations[", i, "]");
  const std::uint32_t moments = static_cast<std::uint32_t>(message.trace().moments_size());
  if (item.produced() >= item.consumed() || item.consumed() >= moments) {
    return Wrong(absl::StrCat(name, " is produced at moment ", item.produced(), " and consumed at ",
                              item.consumed(), " of ", moments,
                              "; it must be produced first, and both within the trace"));
  }
  if (item.bytes() > planner::kMaxChunkBytes || item.kept_bytes() > item.bytes()) {
    return Wrong(absl::StrCat(name, " has ", item.bytes(), " bytes and keeps ", item.kept_bytes(),
                              "; at most ", planner::kMaxChunkBytes,
                              " are possible, of which at most all are kept"));
  }
  if (!std::isfinite(item.recompute_seconds()) || item.recompute_seconds() < 0) {
    return Wrong(absl::StrCat(name, ".recompute_seconds is ", item.recompute_seconds(),
                              "; it must be a time and not negative"));
  }
  return absl::OkStatus();
}

absl::Status CheckActivations(const v1::TraceFile& message) {
  if (static_cast<std::uint64_t>(message.activations_size()) > planner::kMaxMoments) {
    return Wrong(absl::StrCat("there are ", message.activations_size(), " activations; at most ",
                              planner::kMaxMoments, " are read"));
  }
  for (int i = 0; i < message.activations_size(); ++i) {
    GEMINID_RETURN_IF_ERROR(CheckActivation(message, i));
  }
  return absl::OkStatus();
}

}  // namespace

v1::TraceFile ToMessage(const RecordedTrace& recorded) {
  v1::TraceFile message;
  message.set_format_version(kTraceFileVersion);
  message.set_description(recorded.description);
  message.set_world_size(recorded.world_size);
  message.set_ranks_on_node(recorded.ranks_on_node);
  message.set_tokens(recorded.tokens);
  *message.mutable_trace() = messages::TraceToMessage(recorded.trace);
  for (const planner::OptimizerItem& item : recorded.optimizer) {
    v1::TraceOptimizerItem* to = message.add_optimizer();
    to->set_parameters(item.parameters);
    to->set_weight_bytes(item.weight_bytes);
    to->set_remainder_bytes(item.remainder_bytes);
    to->set_moment_bytes(item.moment_bytes);
    to->set_gradient_bytes(item.gradient_bytes);
  }
  for (const planner::ActivationItem& item : recorded.activations) {
    v1::TraceActivation* to = message.add_activations();
    to->set_id(item.id);
    to->set_bytes(item.bytes);
    to->set_produced(item.produced);
    to->set_consumed(item.consumed);
    to->set_recompute_seconds(item.recompute_seconds);
    to->set_kept_bytes(item.kept_bytes);
    to->set_can_recompute(item.can_recompute);
    to->set_can_offload(item.can_offload);
  }
  return message;
}

absl::StatusOr<RecordedTrace> FromMessage(const v1::TraceFile& message) {
  GEMINID_RETURN_IF_ERROR(CheckHead(message));
  RecordedTrace recorded;
  recorded.description = message.description();
  recorded.world_size = message.world_size();
  recorded.ranks_on_node = message.ranks_on_node();
  recorded.tokens = message.tokens();
  recorded.trace = messages::TraceFromMessage<planner::Trace>(message.trace());
  GEMINID_RETURN_IF_ERROR(planner::ValidateTrace(recorded.trace));
  GEMINID_RETURN_IF_ERROR(CheckOptimizer(message));
  GEMINID_RETURN_IF_ERROR(CheckActivations(message));
  for (const v1::TraceOptimizerItem& item : message.optimizer()) {
    recorded.optimizer.push_back({.parameters = item.parameters(),
                                  .weight_bytes = item.weight_bytes(),
                                  .remainder_bytes = item.remainder_bytes(),
                                  .moment_bytes = item.moment_bytes(),
                                  .gradient_bytes = item.gradient_bytes()});
  }
  for (const v1::TraceActivation& item : message.activations()) {
    recorded.activations.push_back({.id = item.id(),
                                    .bytes = item.bytes(),
                                    .produced = item.produced(),
                                    .consumed = item.consumed(),
                                    .recompute_seconds = item.recompute_seconds(),
                                    .kept_bytes = item.kept_bytes(),
                                    .can_recompute = item.can_recompute(),
                                    .can_offload = item.can_offload()});
  }
  return recorded;
}

std::vector<planner::OptimizerItem> DefaultOptimizer(const planner::Trace& trace,
                                                     std::uint32_t world_size,
                                                     std::uint64_t moment_bytes_per_parameter) {
  constexpr std::uint64_t kWeightBytes = 2;
  std::vector<planner::OptimizerItem> items;
  for (const planner::Chunk& chunk : trace.chunks) {
    // State on the device is not transferred, but its shard has the same size.
    const std::uint64_t shard_bytes =
        chunk.transfer_bytes > 0 ? chunk.transfer_bytes : chunk.size_bytes / world_size;
    const std::uint64_t parameters = shard_bytes / kWeightBytes;
    planner::OptimizerItem& item = items.emplace_back();
    item.weight_bytes = parameters * kWeightBytes;
    if (chunk.frozen) continue;
    item.parameters = parameters;
    item.remainder_bytes = parameters * kWeightBytes;
    item.moment_bytes = parameters * moment_bytes_per_parameter;
    item.gradient_bytes = parameters * kWeightBytes;
  }
  return items;
}

void UseMeasuredLink(const RecordedTrace& recorded, Hardware* hardware) {
  const planner::LinkModel& link = recorded.trace.link;
  hardware->up_bytes_per_second = link.h2d_bytes_per_second;
  hardware->down_bytes_per_second = link.d2h_bytes_per_second;
  hardware->copy_latency_seconds = link.latency_seconds;
  hardware->both_bytes_per_second =
      link.both_directions_share < 1
          ? link.both_directions_share * (link.h2d_bytes_per_second + link.d2h_bytes_per_second)
          : 0;
  // Each rank has an equal share of its uplink.
  hardware->node_link_bytes_per_second = link.uplink_bytes_per_second / link.ranks_per_uplink *
                                         static_cast<double>(recorded.ranks_on_node);
}

planner::TierProblem MakeProblem(const RecordedTrace& recorded, const Job& job) {
  planner::TierProblem problem;
  problem.trace = recorded.trace;
  problem.machine = MakeMachine(job);
  problem.trace.arena_bytes = RoundDownToExtent(job.hardware.usable_bytes());
  problem.optimizer = recorded.optimizer;
  if (problem.optimizer.empty()) {
    problem.optimizer = DefaultOptimizer(problem.trace, recorded.world_size,
                                         job.optimizer.moment_bytes_per_parameter());
  }
  problem.activations = recorded.activations;
  problem.planner_options = EnginePlannerOptions();
  // The trace lacks the sizes of the engine's parts of a chunk; none is larger than a chunk.
  for (const planner::OptimizerItem& item : problem.optimizer) {
    problem.device_spare_bytes = std::max(problem.device_spare_bytes, item.state_bytes());
  }
  // The planner is asked for state on the host. If the run had it on the device, the trace has no
  // transfers.
  for (std::size_t i = 0; i < problem.trace.chunks.size(); ++i) {
    problem.trace.chunks[i].transfer_bytes = problem.optimizer[i].weight_bytes;
    problem.trace.chunks[i].gradient_bytes = problem.optimizer[i].gradient_bytes;
  }
  return problem;
}

}  // namespace geminid::forecast
