// All that the daemon holds about tenants beside their memory: how clients are identified, the
// limits of the control plane, and the tenants' log lines.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_TENANCY_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_TENANCY_H_

#include <utility>

#include "daemon/config/settings.h"
#include "daemon/service/tenants/identity.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

struct Tenancy {
  // `identify` empty: clients are identified as the settings say.
  Tenancy(const config::Settings& settings, IdentifyPeer identify)
      : limits(settings.shares), clients(settings.tenant_by, std::move(identify)) {}

  Limits limits;
  TenantLog log{&limits};
  const Clients clients;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_TENANCY_H_
