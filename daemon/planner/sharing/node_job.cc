#include "daemon/planner/sharing/node_job.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace geminid::planner {
namespace {

// Limits with which sums over all jobs of a node do not overflow.
constexpr uint64_t kMostBytes = uint64_t{1} << 52;
constexpr double kMostGoodput = 1e15;

bool CanBe(const RanksRow& row) {
  return row.ranks > 0 && row.ranks <= kMostRanksOfJob && row.memory_bytes <= kMostBytes &&
         std::isfinite(row.goodput) && row.goodput > 0 && row.goodput <= kMostGoodput;
}

GoodputRow OnlyRow(uint64_t ranks, uint64_t memory_bytes) {
  return {{.memory_bytes = std::min(memory_bytes, kMostBytes), .ranks = ranks}, 1};
}

}  // namespace

std::vector<GoodputRow> UsableRows(const NodeJob& job) {
  const std::vector<GoodputRow> now = {OnlyRow(job.ranks, job.memory_bytes)};
  if (job.ranks == 0 || !job.fixed.empty()) return now;
  const uint64_t of_rank = std::min(job.memory_bytes, kMostBytes) / job.ranks;
  std::map<uint64_t, RanksRow> by_ranks;
  for (std::size_t r = 0; r < std::min(job.rows.size(), kMostRowsOfJob); ++r) {
    RanksRow row = job.rows[r];
    if (!CanBe(row) || row.ranks > kMostBytes / std::max<uint64_t>(of_rank, 1)) continue;
    const bool is_now = row.ranks == job.ranks;
    const uint64_t has = is_now ? job.memory_bytes : of_rank * row.ranks;
    row.memory_bytes = std::min(std::max(row.memory_bytes, has), kMostBytes);
    if (is_now || row.memory_bytes <= job.most_bytes) by_ranks.emplace(row.ranks, row);
  }
  if (!by_ranks.contains(job.ranks)) return now;
  std::vector<GoodputRow> rows;
  uint64_t memory_bytes = 0;
  for (const auto& [ranks, row] : by_ranks) {
    memory_bytes = std::max(memory_bytes, row.memory_bytes);
    rows.push_back({{.memory_bytes = memory_bytes, .ranks = ranks}, row.goodput});
  }
  return rows;
}

std::optional<std::size_t> RowOfNow(const NodeJob& job, const std::vector<GoodputRow>& rows) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (job.ranks > 0 && rows[r].share.ranks == job.ranks) return r;
  }
  return std::nullopt;
}

std::size_t LeastRowOf(const NodeJob& job, const std::vector<GoodputRow>& rows) {
  std::size_t least = 0;
  if (job.guaranteed_bytes == 0) return least;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    if (rows[r].share.memory_bytes > job.guaranteed_bytes) break;
    if (rows[r].goodput > rows[least].goodput) least = r;
  }
  return least;
}

std::optional<double> RemainingOf(const NodeJob& job) {
  if (!job.remaining || !std::isfinite(*job.remaining)) return std::nullopt;
  if (*job.remaining < 0 || *job.remaining > 1e300) return std::nullopt;
  return job.remaining;
}

}  // namespace geminid::planner
