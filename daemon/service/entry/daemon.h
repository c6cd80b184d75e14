// The whole daemon: sockets, sessions, services and metrics around one event loop.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/config/settings.h"
#include "daemon/gpus/gpus.h"
#include "daemon/holder/descriptor_store.h"
#include "daemon/os/event.h"
#include "daemon/os/event_loop.h"
#include "daemon/os/file_lock.h"
#include "daemon/service/calls/settings_in_force.h"
#include "daemon/service/entry/attach_server.h"
#include "daemon/service/entry/entrance.h"
#include "daemon/service/entry/rpc_server.h"
#include "daemon/service/sessions/hub.h"
#include "daemon/service/sessions/session_loop.h"
#include "daemon/service/tenants/identity.h"
#include "daemon/service/tenants/tenant_log.h"
#include "daemon/service/watch/observer.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// For the first agent to say which GPUs there are: the driver takes a second or two for each where
// nothing keeps it initialised. The unit's TimeoutStartSec= is longer.
inline constexpr absl::Duration kProbePatience = absl::Seconds(60);

struct DaemonOptions {
  // A private daemon belongs to this process: once it has ended and no session is attached, the
  // daemon ends too. If its output is in the file kStarterLog beside the socket, the folder is its
  // starter's, and is removed. Signals that others send it, as to every process of a job that ends,
  // are nothing to it: the parent is to save first. 0: not private.
  pid_t parent_pid = 0;
  // Receives SIGTERM and SIGINT, which stop the daemon, and SIGHUP, for which it reads its settings
  // again; invalid: none. See os::CreateSignalFd.
  base::UniqueFd signal_fd;
  // Reads them; empty: there is nothing to read again.
  std::function<absl::StatusOr<config::Settings>()> read_settings;
  // The daemon ends with this terminal; invalid: with none.
  base::UniqueFd terminal;
  // What the daemon takes for this machine's NUMA nodes; outlives it.
  const os::Numa* numa = &os::SystemNuma();
  // Who a client is; empty: as the settings say.
  Identify identify;
  // geminid-agent; empty: beside this program.
  std::string agent_program;
  agent::SupervisionOptions agent_supervision{};
  // At settings.socket and beside it, from whoever starts the daemon when somebody connects; both
  // or neither. Invalid: the daemon makes them, and removes their files when it ends.
  base::UniqueFd control_listener;
  base::UniqueFd attach_listener;
  // Where this daemon leaves what its successor needs; called once the socket's lock is held.
  // Empty: sessions end with the daemon.
  std::function<absl::StatusOr<std::unique_ptr<holder::DescriptorStore>>()> open_store;
  // Sparse arenas may be larger than the machine, whose caps then mean nothing: for tests.
  memory::Backing arena_backing = memory::Backing::kPopulated;
};

class Daemon {
 public:
  // Takes the lock, then binds everything; clients can connect when it returns, and are served once
  // Run is called. UNAVAILABLE when another daemon has the socket.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const config::Settings& settings,
                                                       DaemonOptions options);
  ~Daemon();

  // Serves until RequestStop, a signal, or the end of the private parent; then closes everything.
  // On the thread that stays the event loop's.
  void Run();
  // Any thread, any number of times.
  void RequestStop();

  const std::string& socket() const { return settings_.socket; }
  // Empty without a metrics port.
  std::string metrics_address() const { return observer_ == nullptr ? "" : observer_->address(); }
  // A path; empty: metrics are not served at all.
  const std::string& metrics_socket() const { return metrics_socket_; }
  // What its threads leave for whoever watches it.
  const Vitals& vitals() const { return vitals_; }
  // For tests that want to see what no service tells.
  Hub& hub() { return *hub_; }

 private:
  Daemon(const config::Settings& settings, std::vector<gpus::NodeDevice> devices,
         DaemonOptions options, os::FileLock lock);
  absl::Status Open();
  absl::Status OpenEntrance(const DaemonFacts& facts);
  absl::Status OpenMetrics();
  absl::Status WatchSignals();
  absl::Status WatchTerminal();
  void OnSignal(const os::ReceivedSignal& signal);
  void StopWithTerminal();
  void Reload();
  void RefuseReload(const absl::Status& why);
  absl::Status WatchParent();
  absl::Status OpenStore();
  void WatchStore();
  void OnStoreEnd();
  void Step();
  std::optional<int64_t> NextDeadline() const;
  bool Finished() const;
  bool SessionsGoOn() const;
  void Close();
  void RemoveFiles(bool sessions_go_on);
  void RemoveStartersFolder();

  const config::Settings settings_;  // as it was started
  const std::vector<gpus::NodeDevice> devices_;
  SettingsInForce in_force_;
  DaemonOptions options_;
  std::optional<os::FileLock> lock_;
  Vitals vitals_;
  std::string metrics_socket_;
  const bool listeners_handed_over_;
  bool parent_gone_ = false;
  base::UniqueFd parent_pidfd_;
  int64_t watchdog_nanoseconds_ = 0;  // 0: systemd does not watch
  int64_t next_watchdog_ = 0;

  Limits limits_;
  TenantLog log_{&limits_};
  const Clients clients_;

  // In the order of their making; destroyed in the reverse.
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<gpus::Gpus> gpus_;
  std::unique_ptr<holder::DescriptorStore> store_;
  os::EventLoop::WatchId store_watch_ = 0;
  int store_renewals_ = 0;
  bool is_open_ = false;  // its start succeeded
  bool has_served_ = false;
  std::unique_ptr<Hub> hub_;
  std::unique_ptr<SessionLoop> sessions_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<Entrance> entrance_;
  std::unique_ptr<AttachServer> attach_;
  std::unique_ptr<RpcServer> rpc_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_H_
