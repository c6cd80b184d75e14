#include "collectives/hierarchical/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

constexpr int kSmallTries = 5;
constexpr int kLargeTries = 3;
constexpr size_t kHostBytes = 1024 * 1024;  // of all ranks of a host together
constexpr Operation kMeeting = {.kind = OpKind::kBarrier};

// The shortest of `tries` runs; a host's ranks begin each run together.
absl::StatusOr<double> ShortestSeconds(HierarchyLevels& levels, int tries,
                                       absl::FunctionRef<absl::Status()> run) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries; ++i) {
    GEMINID_RETURN_IF_ERROR(levels.Inside([](auto& host) { return host.DoBarrier(kMeeting); }));
    const auto begin = std::chrono::steady_clock::now();
    GEMINID_RETURN_IF_ERROR(run());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    shortest = std::min(shortest, took.count());
  }
  return shortest;
}

// From each rank to its counterpart on the next host. Ranks without counterparts do nothing.
absl::Status PassOn(HierarchyLevels& levels, std::vector<std::byte>& out,
                    std::vector<std::byte>& in) {
  const int hosts = levels.hosts().count;
  const Operation operation = {.kind = OpKind::kBarrier, .count = out.size()};
  if (!levels.has_counterparts()) return absl::OkStatus();
  ExchangeMessages messages = {.sent = operation, .expected = operation};
  messages.sends = {{levels.Counterpart((levels.host() + 1) % hosts), out.data(), out.size()}};
  messages.receives = {
      {levels.Counterpart((levels.host() + hosts - 1) % hosts), in.data(), in.size()}};
  return levels.Between(messages);
}

}  // namespace

absl::StatusOr<LinkCosts> MeasureLinks(HierarchyLevels& levels, absl::Duration timeout) {
  levels.Allow(timeout);
  const size_t large_bytes = kHostBytes / static_cast<size_t>(levels.hosts().ranks_each);
  std::vector<std::byte> small_out(1), small_in(1), out(large_bytes), in(large_bytes);
  LinkCosts costs;
  GEMINID_ASSIGN_OR_RETURN(
      costs.meeting_seconds, ShortestSeconds(levels, kSmallTries, [&] {
        return levels.Inside([](auto& host) { return host.DoBarrier(kMeeting); });
      }));
  GEMINID_ASSIGN_OR_RETURN(costs.exchange_seconds, ShortestSeconds(levels, kSmallTries, [&] {
                             return PassOn(levels, small_out, small_in);
                           }));
  GEMINID_ASSIGN_OR_RETURN(costs.flat_exchange_seconds, ShortestSeconds(levels, kSmallTries, [&] {
                             return levels.network().DoBarrier(kMeeting);
                           }));
  GEMINID_ASSIGN_OR_RETURN(const double large, ShortestSeconds(levels, kLargeTries, [&] {
                             return PassOn(levels, out, in);
                           }));
  costs.seconds_per_byte =
      std::max(0.0, large - costs.exchange_seconds) / static_cast<double>(kHostBytes);
  double values[] = {costs.meeting_seconds, costs.exchange_seconds, costs.flat_exchange_seconds,
                     costs.seconds_per_byte};
  auto* const bytes = reinterpret_cast<std::byte*>(values);
  GEMINID_RETURN_IF_ERROR(levels.network().DoAllReduce({.kind = OpKind::kAllReduce,
                                                        .dtype = DType::kFloat64,
                                                        .reduce = ReduceOp::kMax,
                                                        .count = std::size(values)},
                                                       bytes, bytes));
  return LinkCosts{.meeting_seconds = values[0],
                   .exchange_seconds = values[1],
                   .flat_exchange_seconds = values[2],
                   .seconds_per_byte = values[3]};
}

}  // namespace geminid::collectives
