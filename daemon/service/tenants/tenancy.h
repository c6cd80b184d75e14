// All that the daemon holds about tenants beside their memory: who a client is, what a tenant may
// have of the control plane, and what is logged about it.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_TENANCY_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_TENANCY_H_

#include <utility>

#include "daemon/config/settings.h"
#include "daemon/service/tenants/identity.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

struct Tenancy {
  // `identify` empty: clients are who the settings say.
  Tenancy(const config::Settings& settings, Identify identify)
      : limits(settings.shares), clients(settings.tenant_by, std::move(identify)) {}

  Limits limits;
  TenantLog log{&limits};
  const Clients clients;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_TENANCY_H_
