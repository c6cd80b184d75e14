// Serves metrics and probes on a thread of its own: a scrape delays no transfer, and a stuck event
// loop is still noticed.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_OBSERVER_H_
#define GEMINID_DAEMON_SERVICE_WATCH_OBSERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/metrics/http_server.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/watch/monitor.h"

namespace geminid::service {

struct ObserverOptions {
  std::string host;  // empty: no TCP port
  uint16_t port = 0;
  // Whether a port that cannot be opened is an error; else a log line, and the Unix socket serves.
  bool port_required = true;
  std::string socket;  // a free path; empty: no Unix socket
  mode_t socket_mode = 0;
};

class Observer {
 public:
  // Listens when it returns. `monitor` belongs to the new thread from now on.
  static absl::StatusOr<std::unique_ptr<Observer>> Start(const ObserverOptions& options,
                                                         std::unique_ptr<Monitor> monitor);
  ~Observer();

  // "127.0.0.1:9464"; empty without a port.
  const std::string& address() const { return address_; }

 private:
  Observer(std::unique_ptr<Monitor> monitor, std::unique_ptr<os::EventLoop> loop)
      : monitor_(std::move(monitor)), loop_(std::move(loop)) {}
  absl::Status Listen(const ObserverOptions& options);
  void Run();
  int64_t NextDeadline() const;

  const std::unique_ptr<Monitor> monitor_;
  const std::unique_ptr<os::EventLoop> loop_;
  std::vector<std::unique_ptr<metrics::HttpServer>> servers_;
  std::string address_;
  bool stopping_ = false;  // the thread's own
  std::thread thread_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_OBSERVER_H_
