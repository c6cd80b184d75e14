#include "daemon/gpus/gpu_health.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace geminid::gpus {
namespace {

struct KnownXid {
  uint32_t xid;
  Condition condition;
  const char* meaning;
};

// From NVIDIA's catalogue of Xids. After an unhealthy one the GPU must be reset, or inspected,
// before other programs use it. After a degraded one that may wait until it is convenient. All
// other Xids, such as 13, 31, 43 and 45, come from a program's own errors.
constexpr KnownXid kKnownXids[] = {
    {48, Condition::kUnhealthy, "memory error that was not corrected"},
    {63, Condition::kDegraded, "a page or row of memory is to be replaced at the next reset"},
    {64, Condition::kUnhealthy, "a page or row of memory could not be replaced"},
    {74, Condition::kUnhealthy, "NVLink error"},
    {79, Condition::kUnhealthy, "the GPU has fallen off the bus"},
    {94, Condition::kDegraded, "memory error that ended one program"},
    {95, Condition::kUnhealthy, "memory error that was not contained"},
    {119, Condition::kUnhealthy, "the GPU's system processor does not answer"},
    {120, Condition::kUnhealthy, "error of the GPU's system processor"},
    {140, Condition::kUnhealthy, "memory error that was not recovered from"},
};

const KnownXid* Find(uint32_t xid) {
  const auto* const found = std::find_if(std::begin(kKnownXids), std::end(kKnownXids),
                                         [xid](const KnownXid& known) { return known.xid == xid; });
  return found == std::end(kKnownXids) ? nullptr : found;
}

// The reasons of one condition.
std::vector<std::string> ReasonsOf(Condition condition, const agent::Faults& faults,
                                   const XidCounts& xids) {
  std::vector<std::string> reasons;
  for (const auto& [xid, times] : xids.open()) {
    const KnownXid* const known = Find(xid);
    if (known == nullptr || known->condition != condition) continue;
    reasons.push_back(absl::StrCat("Xid ", xid, " (", known->meaning, ")",
                                   times > 1 ? absl::StrCat(", ", times, " times") : ""));
  }
  if (condition == Condition::kUnhealthy) {
    if (faults.row_remap_failed != 0) reasons.emplace_back("a row of memory could not be replaced");
    return reasons;
  }
  if (faults.row_remap_pending != 0) {
    reasons.emplace_back("rows of memory are to be replaced at the next reset");
  }
  if (faults.retired_pages_pending != 0) {
    reasons.emplace_back("pages of memory are to be retired at the next reset");
  }
  if (faults.volatile_errors != 0) {
    reasons.push_back(absl::StrCat(faults.volatile_errors,
                                   " errors of memory that ECC did not correct since the driver "
                                   "was loaded"));
  }
  return reasons;
}

}  // namespace

const char* Name(Condition condition) {
  switch (condition) {
    case Condition::kUnknown:
      break;
    case Condition::kHealthy:
      return "healthy";
    case Condition::kDegraded:
      return "degraded";
    case Condition::kUnhealthy:
      return "unhealthy";
  }
  return "unknown";
}

void XidCounts::Add(uint32_t xid) {
  constexpr size_t kMostOthers = kMostKinds - std::size(kKnownXids);
  const bool counted = counts_.count(xid) != 0;
  if (!counted && Find(xid) == nullptr && counts_.size() >= kMostOthers) return;
  ++counts_[xid];
  ++open_[xid];
}

Verdict Judge(const agent::Faults& faults, const XidCounts& xids) {
  Verdict verdict = {.condition = faults.known == 0 ? Condition::kUnknown : Condition::kHealthy,
                     .reasons = {}};
  // The worst last, so that its condition remains.
  for (const Condition condition : {Condition::kDegraded, Condition::kUnhealthy}) {
    std::vector<std::string> reasons = ReasonsOf(condition, faults, xids);
    if (reasons.empty()) continue;
    verdict.condition = condition;
    verdict.reasons.insert(verdict.reasons.begin(), reasons.begin(), reasons.end());
  }
  return verdict;
}

}  // namespace geminid::gpus
