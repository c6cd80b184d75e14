// The sessions' plans: for the engine's evictions, for people to look at, and stored for the next
// daemon.
//
// A plan enters the descriptor store under a name of its own; then the older one is removed. The
// next daemon finds one of them or both. It takes the newest one that passes the checks of
// StoredPlan and of the engine. Without one, chunks are evicted by last use until the client makes
// another.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_PLANS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_PLANS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "daemon/core/accounts/shared_limit.h"
#include "daemon/metrics/reading.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/stored_plan.h"
#include "daemon/service/tenants/limits.h"

namespace geminid::service {

// Thread-safe.
class SessionPlans {
 public:
  using Locked = SessionTable::Locked;

  // `memory_bytes`: for the plans and traces of all sessions. The others outlive it.
  SessionPlans(uint64_t memory_bytes, Limits* limits, SessionTable* table, SessionStore* store)
      : limits_(limits), table_(table), store_(store), memory_("plan_memory", memory_bytes) {}

  // See SessionHub::SetPlan.
  absl::Status Set(const SessionPtr& session, const core::NextUseTable& table,
                   const v1::Trace& trace, const v1::Plan& plan);
  // Puts the newest sound plan of those that an earlier daemon left (by number) in force. The names
  // of the others go to `unused`.
  void Load(const Locked& locked, ClientSession* session, std::map<uint64_t, base::UniqueFd> plans,
            std::vector<std::string>* unused);
  // Frees the memory that the session's plan takes of its tenant's share.
  void Forget(const Locked&, ClientSession* session);

  metrics::UsageAndLimit memory(const Locked&) const { return {memory_.used(), memory_.total()}; }

 private:
  // `uses` are those of a table of `table_bytes`. If there is no room to store the plan, `*kept`
  // becomes null.
  absl::Status PutInForce(const Locked& locked, ClientSession* session, uint64_t table_bytes,
                          core::PlanUses* uses, std::shared_ptr<const StoredPlan>* kept);
  absl::Status LoadOne(const Locked& locked, ClientSession* session, base::UniqueFd fd);

  Limits* const limits_;
  SessionTable* const table_;
  SessionStore* const store_;
  core::SharedLimit memory_;  // in bytes; guarded by the mutex of the table
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_PLANS_H_
