// The limits of sessions and chunks that the tenants of a node share, and counts of the refusals by
// these and other limits.
#ifndef GEMINID_DAEMON_CORE_ENGINE_NODE_LIMITS_H_
#define GEMINID_DAEMON_CORE_ENGINE_NODE_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/core/accounts/shared_limit.h"
#include "daemon/core/engine/refusals.h"

namespace geminid::core {

class NodeLimits {
 public:
  NodeLimits(uint64_t sessions, uint64_t chunks)
      : sessions_("sessions", sessions), chunks_("chunks", chunks) {}

  // RESOURCE_EXHAUSTED above the tenant's share; the refusal is counted.
  absl::Status TakeSession(const std::string& tenant) { return Take(&sessions_, tenant, 1); }
  absl::Status TakeChunks(const std::string& tenant, uint64_t count) {
    return Take(&chunks_, tenant, count);
  }
  void GiveSession(const std::string& tenant) { sessions_.Give(tenant, 1); }
  void GiveChunks(const std::string& tenant, uint64_t count) { chunks_.Give(tenant, count); }
  // Counts a session that an earlier daemon admitted.
  void TakeAgain(const std::string& tenant, uint64_t chunks) {
    sessions_.TakeAgain(tenant, 1);
    chunks_.TakeAgain(tenant, chunks);
  }
  // Counts a refusal by another limit.
  void CountRefusal(const std::string& limit, const std::string& tenant) {
    refusals_.Count(limit, tenant);
  }

  const SharedLimit& sessions() const { return sessions_; }
  const SharedLimit& chunks() const { return chunks_; }
  const Refusals& refusals() const { return refusals_; }

 private:
  absl::Status Take(SharedLimit* limit, const std::string& tenant, uint64_t count) {
    absl::Status taken = limit->Take(tenant, count);
    if (!taken.ok()) refusals_.Count(limit->name(), tenant);
    return taken;
  }

  SharedLimit sessions_;
  SharedLimit chunks_;
  Refusals refusals_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_NODE_LIMITS_H_
