#include "daemon/planner/contract/trace.h"

#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

TEST(TraceHash, EqualTraces_HashEqual) {
  EXPECT_EQ(TraceHash(ChainTrace(4, 8, 3, 2, true)), TraceHash(ChainTrace(4, 8, 3, 2, true)));
}

TEST(TraceHash, FixedTrace_HasTheRecordedValue) {
  // Ranks of different builds compare hashes, so a change here changes the protocol.
  EXPECT_EQ(TraceHash(ChainTrace(2, 8, 2, 1, true)), 5637647159998906238u);
}

TEST(TraceHash, AnyFieldChanged_HashesDifferently) {
  const std::vector<std::function<void(Trace&)>> changes = {
      [](Trace&) {},
      [](Trace& t) { t.arena_bytes += 1; },
      [](Trace& t) { t.link.h2d_bytes_per_second *= 2; },
      [](Trace& t) { t.link.d2h_bytes_per_second *= 2; },
      [](Trace& t) { t.link.latency_seconds += 1; },
      [](Trace& t) { t.link.both_directions_share = 0.75; },
      [](Trace& t) { t.link.uplink_bytes_per_second = 1; },
      [](Trace& t) { t.link.ranks_per_uplink = 2; },
      [](Trace& t) { t.chunks[1].id += 1; },
      [](Trace& t) { t.chunks[1].size_bytes += 1; },
      [](Trace& t) { t.chunks[1].transfer_bytes += 1; },
      [](Trace& t) { t.chunks[1].gradient_bytes += 1; },
      [](Trace& t) { t.chunks[1].frozen = true; },
      [](Trace& t) { t.chunks.push_back(t.chunks[0]); },
      [](Trace& t) { t.moments[2].workspace_bytes += 1; },
      [](Trace& t) { t.moments[2].compute_seconds += 1; },
      [](Trace& t) { t.moments[2].uses[0].chunk = 0; },
      [](Trace& t) { t.moments[2].uses[0].invalidates = !t.moments[2].uses[0].invalidates; },
      [](Trace& t) { t.moments[2].uses.clear(); },
      [](Trace& t) { t.moments.pop_back(); },
  };
  std::set<std::uint64_t> hashes;
  for (const auto& change : changes) {
    Trace trace = ChainTrace(4, 8, 3, 2, true);
    change(trace);
    hashes.insert(TraceHash(trace));
  }
  EXPECT_EQ(hashes.size(), changes.size());
}

TEST(ValidateTrace, EachBrokenRule_IsRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::function<void(Trace&)>> changes = {
      [](Trace& t) { t.moments.clear(); },
      [](Trace& t) { t.moments.resize(kMaxMoments + 1); },
      [](Trace& t) { t.chunks.resize(kMaxChunks + 1, t.chunks[0]); },
      [](Trace& t) { t.arena_bytes = kMaxArenaBytes + 1; },
      [](Trace& t) { t.link.h2d_bytes_per_second = 0; },
      [](Trace& t) { t.link.d2h_bytes_per_second = kNan; },
      [](Trace& t) { t.link.h2d_bytes_per_second = kMinBytesPerSecond / 2; },
      [](Trace& t) { t.link.d2h_bytes_per_second = 2 * kMaxBytesPerSecond; },
      [](Trace& t) { t.link.latency_seconds = -1; },
      [](Trace& t) { t.link.latency_seconds = 2 * kMaxSeconds; },
      [](Trace& t) { t.link.both_directions_share = 0.49; },
      [](Trace& t) { t.link.both_directions_share = 1.01; },
      [](Trace& t) { t.link.both_directions_share = kNan; },
      [](Trace& t) { t.link.uplink_bytes_per_second = -1; },
      [](Trace& t) { t.link.uplink_bytes_per_second = kNan; },
      [](Trace& t) {
        t.link.uplink_bytes_per_second = 2;
        t.link.ranks_per_uplink = 3;
      },
      [](Trace& t) { t.link.ranks_per_uplink = 0; },
      [](Trace& t) { t.chunks[1].size_bytes = 0; },
      [](Trace& t) { t.chunks[1].size_bytes = kMaxChunkBytes + 1; },
      [](Trace& t) { t.chunks[1].transfer_bytes = kMaxChunkBytes + 1; },
      [](Trace& t) { t.chunks[1].gradient_bytes = kMaxChunkBytes + 1; },
      [](Trace& t) { t.moments[1].workspace_bytes = kMaxArenaBytes + 1; },
      [](Trace& t) { t.moments[1].compute_seconds = kNan; },
      [](Trace& t) { t.moments[1].compute_seconds = -1; },
      [](Trace& t) { t.moments[1].compute_seconds = 2 * kMaxSeconds; },
      [](Trace& t) { t.moments[1].uses[0].chunk = 4; },
      [](Trace& t) { t.moments[1].uses.push_back(t.moments[1].uses[0]); },
  };
  EXPECT_TRUE(ValidateTrace(ChainTrace(4, 8, 3, 2, true)).ok());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Trace trace = ChainTrace(4, 8, 3, 2, true);
    changes[i](trace);
    EXPECT_EQ(ValidateTrace(trace).code(), absl::StatusCode::kInvalidArgument) << "change " << i;
  }
}

TEST(ValidateTrace, TooManyUses_IsRefused) {
  Trace trace = ChainTrace(1, 8, 1, 1, false);
  trace.chunks.resize(1024, trace.chunks[0]);
  MomentTrace full;
  for (ChunkIndex i = 0; i < 1024; ++i) full.uses.push_back({.chunk = i});
  trace.moments.assign(kMaxUses / 1024, full);
  EXPECT_TRUE(ValidateTrace(trace).ok());
  trace.moments.push_back({.uses = {{.chunk = 0}}});
  EXPECT_EQ(ValidateTrace(trace).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::planner
