// All that clients and people connect to: the attach socket, the control plane and the metrics.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_SERVERS_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_SERVERS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "daemon/config/settings.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/calls/settings_in_force.h"
#include "daemon/service/entry/attach_server.h"
#include "daemon/service/entry/daemon_options.h"
#include "daemon/service/entry/entrance.h"
#include "daemon/service/entry/rpc_server.h"
#include "daemon/service/entry/socket_files.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/sessions/session_loop.h"
#include "daemon/service/tenants/tenancy.h"
#include "daemon/service/watch/observer.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

class Servers {
 public:
  // What the servers use; all of it must outlive them.
  struct Of {
    const SettingsInForce* in_force = nullptr;
    os::EventLoop* loop = nullptr;  // the sessions'
    SessionLoop* sessions = nullptr;
    SessionHub* hub = nullptr;
    Tenancy* tenancy = nullptr;
    Vitals* vitals = nullptr;
  };
  explicit Servers(const Of& of) : of_(of) {}

  // Before OpenEntrance. A private daemon has metrics only where its settings ask for them.
  absl::Status OpenMetrics(const config::Settings& settings, bool is_private, SocketFiles* files);
  // With the listeners of `options`, if any. Call it last: a client that can attach can do all.
  absl::Status OpenEntrance(const config::Settings& settings, const SocketFiles& files,
                            DaemonOptions* options);

  // Empty without a metrics port.
  std::string metrics_address() const { return observer_ == nullptr ? "" : observer_->address(); }
  bool has_control() const { return rpc_ != nullptr; }

  // Takes no more connections and ends the calls. False: some calls do not end. Then neither this
  // object nor anything in `Of` may ever be destroyed.
  bool Stop();

 private:
  const Of of_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<Entrance> entrance_;
  std::unique_ptr<AttachServer> attach_;
  std::unique_ptr<RpcServer> rpc_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_SERVERS_H_
