// The whole daemon: sockets, sessions, services and metrics around one event loop.
//
//   SocketFiles    the folder of the sockets, and the lock that keeps other daemons out
//   WatchedStore   the descriptor store, where the next daemon finds the sessions
//   SessionHub            the sessions; SessionLoop: their place in the event loop
//   Servers        what clients and people connect to
//   StopSigns      signals, the terminal and the parent, which end the daemon
//   Reloader       reads the settings again
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/settings.h"
#include "daemon/gpus/assign.h"
#include "daemon/gpus/gpus.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/entry/daemon_options.h"
#include "daemon/service/entry/reloader.h"
#include "daemon/service/entry/servers.h"
#include "daemon/service/entry/socket_files.h"
#include "daemon/service/entry/stop_signs.h"
#include "daemon/service/entry/watchdog.h"
#include "daemon/service/entry/watched_store.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/sessions/session_loop.h"
#include "daemon/service/tenants/tenancy.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

class Daemon {
 public:
  // Takes the lock, then binds everything; clients can connect when it returns, and are served once
  // Run is called. UNAVAILABLE when another daemon has the socket.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const config::Settings& settings,
                                                       DaemonOptions options);
  ~Daemon();

  // Serves until RequestStop, a signal, or the end of the private parent; then closes everything.
  // The calling thread becomes the event loop's.
  void Run();
  // Any thread, any number of times.
  void RequestStop();

  const std::string& socket() const { return files_.socket(); }
  // Empty without a metrics port.
  std::string metrics_address() const {
    return servers_ == nullptr ? "" : servers_->metrics_address();
  }
  // A path; empty: metrics are not served at all.
  const std::string& metrics_socket() const { return files_.metrics_socket(); }
  // Values that its threads publish for health checks and metrics.
  const Vitals& vitals() const { return vitals_; }
  // For tests of state that no service shows.
  SessionHub& hub() { return *hub_; }

 private:
  enum class Stage {
    kStarting,
    kOpen,    // its start succeeded
    kServed,  // and it survived the sessions that it took over
  };

  Daemon(const config::Settings& settings, DaemonOptions options, SocketFiles files);
  absl::Status Open(const std::vector<gpus::NodeDevice>& devices);
  absl::Status OpenHub(const std::vector<gpus::NodeDevice>& devices);
  absl::Status OpenServers();
  void Step(Watchdog* watchdog);
  std::optional<int64_t> NextDeadline(const Watchdog& watchdog) const;
  bool Finished() const;
  void Reload();
  bool SessionsGoOn() const;
  void TellAll(shm::Phase phase, SleepingClient::End end);
  void Close();

  const config::Settings settings_;  // those of its start
  DaemonOptions options_;
  SocketFiles files_;
  Vitals vitals_;
  Tenancy tenancy_;
  Stage stage_ = Stage::kStarting;

  // In the order of their making; destroyed in the reverse.
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<gpus::Gpus> gpus_;
  std::unique_ptr<WatchedStore> store_;  // null: sessions end with the daemon
  std::unique_ptr<SessionHub> hub_;
  std::unique_ptr<SessionLoop> sessions_;
  Reloader reloader_;
  std::unique_ptr<Servers> servers_;
  std::unique_ptr<StopSigns> stop_signs_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_H_
