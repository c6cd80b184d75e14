#ifndef GEMINID_DAEMON_PLANNER_CONTRACT_TRACE_H_
#define GEMINID_DAEMON_PLANNER_CONTRACT_TRACE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/shm/limits.h"

// The planner's input: one training iteration, as warm-up measured it.
//
// An iteration is a cyclic sequence of moments 0..N-1 (operator boundaries: the forward pass, then
// the backward pass). At each moment a set of gathered weight chunks must lie in the device arena.
// The workspace (activations and temporaries) grows down from the top of the arena, so during
// moment t chunks may only lie in [0, arena_bytes - workspace_bytes of t).
//
// Plain values: copyable, no threads, no ownership of anything outside.

namespace geminid::planner {

// Position of a chunk in Trace::chunks.
using ChunkIndex = std::uint32_t;
// Position of a moment in Trace::moments.
using Moment = std::uint32_t;

struct Chunk {
  // Chosen by the caller, carried through, never interpreted.
  std::uint64_t id = 0;
  // The gathered weight on the device.
  std::uint64_t size_bytes = 0;
  // The bytes that one load moves from host to device on this rank: size_bytes / ranks.
  std::uint64_t transfer_bytes = 0;
  // The bytes that leave from device to host on this rank after the invalidating use; 0: none.
  std::uint64_t gradient_bytes = 0;
  // The optimizer never changes the chunk, so a device copy stays valid over the iteration
  // boundary.
  bool frozen = false;
};

struct Use {
  ChunkIndex chunk = 0;
  // After this moment the chunk's extent holds the gradient, which then leaves: the weight is gone
  // from the device. True for the last backward use of a trained chunk.
  bool invalidates = false;
};

struct MomentTrace {
  // Each chunk at most once.
  std::vector<Use> uses = {};
  // Non-model memory at the top of the arena.
  std::uint64_t workspace_bytes = 0;
  double compute_seconds = 0;
};

// The link between host and device as one rank sees it. By the defaults of the last three members
// the rank has a link of its own, and its directions do not slow each other.
struct LinkModel {
  // The speed of one direction while the other is idle and no other rank transfers.
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  // The part of a transfer's time that does not depend on its size.
  double latency_seconds = 0;
  // The fraction of its speed that each direction reaches while both transfer. 1: they are
  // independent; 0.5: they share one channel. Less is refused: taking turns would then be faster.
  double both_directions_share = 1;
  // The speed that all ranks behind one root complex reach together in one direction; 0: no limit
  // is known. Ranks run the same plan at the same time, so each gets an equal share of the speed.
  double uplink_bytes_per_second = 0;
  std::uint32_t ranks_per_uplink = 1;
};

struct Trace {
  std::uint64_t arena_bytes = 0;
  std::vector<Chunk> chunks;
  std::vector<MomentTrace> moments;
  LinkModel link;
};

// Limits that keep every sum of bytes below 2^63 and the time to plan bounded.
inline constexpr std::uint64_t kMaxMoments = std::uint64_t{1} << 16;
using shm::kMaxArenaBytes;
using shm::kMaxChunkBytes;
using shm::kMaxChunks;
inline constexpr std::uint64_t kMaxUses = std::uint64_t{1} << 18;
// Limits that keep every sum of times finite. A moment lasts at most thirty years.
inline constexpr double kMaxSeconds = 1e9;
inline constexpr double kMinBytesPerSecond = 1;
inline constexpr double kMaxBytesPerSecond = 1e18;

// INVALID_ARGUMENT naming the field if the trace breaks a limit or a rule above. O(size).
absl::Status ValidateTrace(const Trace& trace);

// A stable 64-bit hash (FNV-1a over every field in order): equal on all ranks and machines when,
// and practically only when, the traces are equal.
std::uint64_t TraceHash(const Trace& trace);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_CONTRACT_TRACE_H_
