// A very small HTTP server for a few pages. It runs on the thread of an event loop.
//
// prometheus::Exposer is not used: its destructor takes up to two seconds, and it throws when the
// port is in use.
#ifndef GEMINID_DAEMON_METRICS_HTTP_SERVER_H_
#define GEMINID_DAEMON_METRICS_HTTP_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/acceptor.h"
#include "daemon/os/event_loop.h"

namespace geminid::metrics {

inline constexpr size_t kMaxConnections = 32;
inline constexpr size_t kMaxRequestBytes = 8192;
// Longest time from a client's connection to the last byte of its answer.
inline constexpr int64_t kConnectionNanoseconds = 10'000'000'000;

struct HttpResponse {
  int code = 200;
  std::string reason = "OK";
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers one GET or HEAD request per connection with what `handler` returns for the path, then
// closes the connection. Refuses every other request. Belongs to the event loop's thread.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const std::string& path)>;

  // Listens on a numeric IPv4 or IPv6 address; with port 0, on any free port. Returns UNAVAILABLE
  // if the port is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& host, uint16_t port,
                                                            os::EventLoop* loop, Handler handler);
  // Listens on a Unix socket. Its path must be free; the socket file gets exactly `mode`.
  static absl::StatusOr<std::unique_ptr<HttpServer>> CreateUnix(const std::string& path,
                                                                mode_t mode, os::EventLoop* loop,
                                                                Handler handler);
  ~HttpServer();

  // The address that it listens on, such as "127.0.0.1:9464" or "unix:/run/x.http".
  const std::string& address() const { return address_; }

  // Closes connections that took too long. Accepts again if descriptors had run out before.
  void Expire(int64_t now_nanoseconds);
  std::optional<int64_t> NextDeadline() const;

 private:
  struct Connection {
    base::UniqueFd fd;
    os::EventLoop::WatchId watch = 0;
    int64_t deadline = 0;
    std::string request;
    std::string response;
    size_t sent = 0;
  };

  HttpServer(std::string address, os::EventLoop* loop, Handler handler)
      : address_(std::move(address)), loop_(loop), handler_(std::move(handler)) {}
  static absl::StatusOr<std::unique_ptr<HttpServer>> Serve(base::UniqueFd listener,
                                                           std::string address, os::EventLoop* loop,
                                                           Handler handler);
  void OnConnection(base::UniqueFd fd);
  void OnEvent(uint64_t id);
  bool Read(Connection* connection);  // false: the caller closes the connection
  bool Write(Connection* connection);
  void Close(uint64_t id);

  const std::string address_;
  os::EventLoop* const loop_;
  const Handler handler_;
  std::unique_ptr<os::Acceptor> acceptor_;
  uint64_t next_connection_ = 1;
  std::map<uint64_t, Connection> connections_;  // in the order of their deadlines
};

// Returns the bytes of the answer to one complete request. For tests and fuzzing.
std::string Respond(const std::string& request, const HttpServer::Handler& handler);

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_HTTP_SERVER_H_
