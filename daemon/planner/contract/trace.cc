#include "daemon/planner/contract/trace.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace geminid::planner {
namespace {

bool IsDuration(double seconds) { return seconds >= 0 && seconds <= kMaxSeconds; }
bool IsSpeed(double bytes_per_second) {
  return bytes_per_second >= kMinBytesPerSecond && bytes_per_second <= kMaxBytesPerSecond;
}

absl::Status ValidateHead(const Trace& trace) {
  if (trace.moments.empty() || trace.moments.size() > kMaxMoments) {
    return absl::InvalidArgumentError(absl::StrCat("trace.moments has ", trace.moments.size(),
                                                   " entries; 1 to ", kMaxMoments, " are allowed"));
  }
  if (trace.chunks.size() > kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("trace.chunks has ", trace.chunks.size(),
                                                   " entries; at most ", kMaxChunks,
                                                   " are allowed"));
  }
  if (trace.arena_bytes > kMaxArenaBytes) {
    return absl::InvalidArgumentError(absl::StrCat("trace.arena_bytes is ", trace.arena_bytes,
                                                   "; at most ", kMaxArenaBytes, " are allowed"));
  }
  const LinkModel& link = trace.link;
  if (!IsSpeed(link.h2d_bytes_per_second) || !IsSpeed(link.d2h_bytes_per_second) ||
      !IsDuration(link.latency_seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trace.link: ", link.h2d_bytes_per_second, " and ", link.d2h_bytes_per_second,
        " bytes/s, latency ", link.latency_seconds, " s; speeds must be ", kMinBytesPerSecond,
        " to ", kMaxBytesPerSecond, ", the latency 0 to ", kMaxSeconds));
  }
  if (!(trace.link.both_directions_share >= 0.5 && trace.link.both_directions_share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace.link.both_directions_share is ", trace.link.both_directions_share,
                     "; it must be 0.5 (one shared channel) to 1 (independent directions)"));
  }
  const double uplink = link.uplink_bytes_per_second;
  const bool is_limited = uplink != 0;
  if (link.ranks_per_uplink == 0 || (is_limited && !IsSpeed(uplink / link.ranks_per_uplink))) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace.link: an uplink of ", uplink, " bytes/s for ", link.ranks_per_uplink,
                     " ranks; there is at least one, and each has ", kMinBytesPerSecond, " to ",
                     kMaxBytesPerSecond, " (0: no limit)"));
  }
  return absl::OkStatus();
}

absl::Status ValidateChunks(const Trace& trace) {
  for (std::size_t i = 0; i < trace.chunks.size(); ++i) {
    const Chunk& chunk = trace.chunks[i];
    if (chunk.size_bytes == 0 || chunk.size_bytes > kMaxChunkBytes ||
        chunk.transfer_bytes > kMaxChunkBytes || chunk.gradient_bytes > kMaxChunkBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trace.chunks[", i, "]: size ", chunk.size_bytes, ", transfer ", chunk.transfer_bytes,
          ", gradient ", chunk.gradient_bytes, " bytes; the size must be 1 to ", kMaxChunkBytes,
          " and the others at most that"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateMoments(const Trace& trace) {
  std::uint64_t num_uses = 0;
  // Per chunk, one past the last moment that named it.
  std::vector<std::size_t> seen(trace.chunks.size(), 0);
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    const MomentTrace& moment = trace.moments[t];
    if (moment.workspace_bytes > kMaxArenaBytes || !IsDuration(moment.compute_seconds)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trace.moments[", t, "]: workspace ", moment.workspace_bytes, " bytes, compute ",
          moment.compute_seconds, " s; the workspace may be at most ", kMaxArenaBytes,
          " and the time 0 to ", kMaxSeconds));
    }
    num_uses += moment.uses.size();
    for (const Use& use : moment.uses) {
      if (use.chunk >= trace.chunks.size()) {
        return absl::InvalidArgumentError(absl::StrCat("trace.moments[", t, "] uses chunk ",
                                                       use.chunk, " of ", trace.chunks.size()));
      }
      if (seen[use.chunk] == t + 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("trace.moments[", t, "] names chunk ", use.chunk, " twice"));
      }
      seen[use.chunk] = t + 1;
    }
  }
  if (num_uses > kMaxUses) {
    return absl::InvalidArgumentError(
        absl::StrCat("the trace has ", num_uses, " uses; at most ", kMaxUses, " are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTrace(const Trace& trace) {
  if (absl::Status status = ValidateHead(trace); !status.ok()) return status;
  if (absl::Status status = ValidateChunks(trace); !status.ok()) return status;
  return ValidateMoments(trace);
}

std::uint64_t TraceHash(const Trace& trace) {
  base::Fnv1a hash;
  hash.Add(trace.arena_bytes);
  hash.AddReal(trace.link.h2d_bytes_per_second);
  hash.AddReal(trace.link.d2h_bytes_per_second);
  hash.AddReal(trace.link.latency_seconds);
  hash.AddReal(trace.link.both_directions_share);
  hash.AddReal(trace.link.uplink_bytes_per_second);
  hash.Add(trace.link.ranks_per_uplink);
  hash.Add(trace.chunks.size());
  for (const Chunk& chunk : trace.chunks) {
    hash.Add(chunk.id);
    hash.Add(chunk.size_bytes);
    hash.Add(chunk.transfer_bytes);
    hash.Add(chunk.gradient_bytes);
    hash.Add(chunk.frozen ? 1 : 0);
  }
  hash.Add(trace.moments.size());
  for (const MomentTrace& moment : trace.moments) {
    hash.Add(moment.workspace_bytes);
    hash.AddReal(moment.compute_seconds);
    hash.Add(moment.uses.size());
    for (const Use& use : moment.uses) {
      hash.Add(use.chunk);
      hash.Add(use.invalidates ? 1 : 0);
    }
  }
  return hash.value();
}

}  // namespace geminid::planner
