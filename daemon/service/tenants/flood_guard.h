// Notices processes that connect as fast as a processor can, so that they can be refused.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_FLOOD_GUARD_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_FLOOD_GUARD_H_

#include "base/unique_fd.h"
#include "daemon/core/transfers/token_bucket.h"
#include "daemon/service/tenants/limits.h"

namespace geminid::service {

// A process may connect twice as often as a tenant may make connections for calls. So connections
// beyond the tenant's rate are refused with a message first. Beyond twice that rate they are closed
// without one, for three system calls each: others wait behind them in the same backlog.
// One per listener; belongs to the thread that accepts.
class FloodGuard {
 public:
  // `limits` outlives it.
  explicit FloodGuard(const Limits* limits) : limits_(limits) {}

  // Whether the connection is to be closed without further questions.
  bool Floods(const base::UniqueFd& connection, core::Time now);

 private:
  static constexpr double kTenantsPerProcess = 2;

  const Limits* const limits_;
  core::TenantRates processes_{core::Rate{}};
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_FLOOD_GUARD_H_
