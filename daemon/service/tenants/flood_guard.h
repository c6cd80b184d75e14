// Notices processes that connect as fast as a processor can, so that they can be refused.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_FLOOD_GUARD_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_FLOOD_GUARD_H_

#include "base/unique_fd.h"
#include "daemon/core/transfers/token_bucket.h"
#include "daemon/service/tenants/limits.h"

namespace geminid::service {

// A process may connect twice as often as a tenant may make connections for calls. Connections
// beyond the tenant's rate are refused with a message. Beyond the process's rate they are closed
// without one, which takes three system calls: others wait behind them in the same backlog. One
// guard per listener; belongs to the thread that accepts.
class FloodGuard {
 public:
  // `limits` outlives it.
  explicit FloodGuard(const Limits* limits) : limits_(limits) {}

  // Whether to close the connection at once, without a message.
  bool Floods(const base::UniqueFd& connection, core::Time now);

 private:
  static constexpr double kTenantsPerProcess = 2;

  const Limits* const limits_;
  core::TenantRates processes_{core::Rate{}};
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_FLOOD_GUARD_H_
