// Every service of the control plane, as a list of methods.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_SERVICES_H_
#define GEMINID_DAEMON_SERVICE_CALLS_SERVICES_H_

#include <functional>
#include <vector>

#include "daemon/service/calls/client_services.h"
#include "daemon/service/calls/job_services.h"
#include "daemon/service/calls/operator_services.h"
#include "daemon/service/calls/rpc_method.h"
#include "daemon/service/calls/settings_in_force.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

class Services {
 public:
  // The pointers must outlive the services. `on_detached` is called on a worker's thread after a
  // session has ended.
  Services(const SettingsInForce* settings, const DaemonFacts& facts, SessionHub* hub,
           TenantLog* log, const std::function<void(shm::SessionId)>& on_detached);
  // The methods refer to these services, which must outlive the methods.
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  SessionRpc session_;
  ChunkRpc chunk_;
  PlanRpc plan_;
  MemoryRpc memory_;
  AdminRpc admin_;
  ConfigRpc config_;
  JobRpc job_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_SERVICES_H_
