#include "daemon/planner/problem/free_bytes.h"

#include <algorithm>

namespace geminid::planner {
namespace {
// The result within one part if no moment is below; it is less than any moment of any part.
constexpr std::int64_t kNoMoment = -1;
}  // namespace

FreeBytes::FreeBytes(const std::vector<std::int64_t>& bytes)
    : num_moments_(static_cast<std::int64_t>(bytes.size())),
      min_(4 * bytes.size()),
      added_(4 * bytes.size(), 0) {
  Build(1, 0, num_moments_ - 1, bytes);
}

void FreeBytes::Build(std::size_t node, std::int64_t low, std::int64_t high,
                      const std::vector<std::int64_t>& bytes) {
  if (low == high) {
    min_[node] = bytes[static_cast<std::size_t>(low)];
    return;
  }
  const std::int64_t middle = low + (high - low) / 2;
  Build(2 * node, low, middle, bytes);
  Build(2 * node + 1, middle + 1, high, bytes);
  min_[node] = std::min(min_[2 * node], min_[2 * node + 1]);
}

void FreeBytes::Add(std::int64_t first, std::int64_t last, std::int64_t bytes) {
  ForEachPart(first, last, num_moments_,
              [&](std::int64_t low, std::int64_t high, std::int64_t /*shift*/) {
                AddIn(1, 0, num_moments_ - 1, low, high, bytes);
              });
}

void FreeBytes::AddIn(std::size_t node, std::int64_t low, std::int64_t high, std::int64_t first,
                      std::int64_t last, std::int64_t bytes) {
  if (last < low || high < first) return;
  if (first <= low && high <= last) {
    min_[node] += bytes;
    added_[node] += bytes;
    return;
  }
  const std::int64_t middle = low + (high - low) / 2;
  AddIn(2 * node, low, middle, first, last, bytes);
  AddIn(2 * node + 1, middle + 1, high, first, last, bytes);
  min_[node] = std::min(min_[2 * node], min_[2 * node + 1]) + added_[node];
}

std::int64_t FreeBytes::LastBelow(std::int64_t first, std::int64_t last, std::int64_t bytes) const {
  std::int64_t found = first - 1;
  ForEachPart(first, last, num_moments_,
              [&](std::int64_t low, std::int64_t high, std::int64_t shift) {
                if (found >= first) return;
                const std::int64_t moment = LastBelowIn(1, 0, num_moments_ - 1, low, high, bytes);
                if (moment != kNoMoment) found = moment - shift;
              });
  return found;
}

std::int64_t FreeBytes::LastBelowIn(std::size_t node, std::int64_t low, std::int64_t high,
                                    std::int64_t first, std::int64_t last,
                                    std::int64_t bytes) const {
  if (last < low || high < first || min_[node] >= bytes) return kNoMoment;
  if (low == high) return low;
  const std::int64_t middle = low + (high - low) / 2;
  const std::int64_t below = bytes - added_[node];
  const std::int64_t right = LastBelowIn(2 * node + 1, middle + 1, high, first, last, below);
  if (right != kNoMoment) return right;
  return LastBelowIn(2 * node, low, middle, first, last, below);
}

}  // namespace geminid::planner
