// Judges by its driver's reports whether a GPU is fit for new sessions. Pure; docs/metrics.md has
// the rule for people.
#ifndef GEMINID_DAEMON_GPUS_GPU_HEALTH_H_
#define GEMINID_DAEMON_GPUS_GPU_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/agent/messages.h"

namespace geminid::gpus {

enum class Condition {
  kUnknown,  // the driver has said nothing
  kHealthy,
  kDegraded,   // it works, and should be looked after when its jobs have ended
  kUnhealthy,  // work on it fails or ends in wrong numbers: it gets no new sessions
};
const char* Name(Condition condition);

// How often each Xid came. An agent may report any number, so the kinds that are counted are
// limited; those that mean something here always are.
class XidCounts {
 public:
  static constexpr size_t kMostKinds = 32;

  void Add(uint32_t xid);
  // The operator has looked into the Xids so far. They stay counted.
  void Settle() { open_.clear(); }
  const std::map<uint32_t, uint64_t>& counts() const { return counts_; }
  // The Xids that nobody has looked into.
  const std::map<uint32_t, uint64_t>& open() const { return open_; }

 private:
  std::map<uint32_t, uint64_t> counts_;
  std::map<uint32_t, uint64_t> open_;
};

struct Verdict {
  Condition condition = Condition::kUnknown;
  std::vector<std::string> reasons;  // the worst first; none where it is healthy or unknown
};
// Judges the faults and the open Xids. `faults` are zero if nothing was reported.
Verdict Judge(const agent::Faults& faults, const XidCounts& xids);

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_GPU_HEALTH_H_
